//! The notation of values in a file: `"5s"`, `"256MiB"`, and numbers that must not be zero.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::table::{ReadSettings, SettingsTable, WriteSettings};

/// The form in which a file writes a value of type `T`.
pub trait Notation<T> {
    /// Converts the written form to the value.
    fn value(self) -> T;
    /// Converts a value to its written form.
    fn written(value: &T) -> Self;
}

impl<T, N: Notation<T>> Notation<Option<T>> for Option<N> {
    fn value(self) -> Option<T> {
        self.map(N::value)
    }

    fn written(value: &Option<T>) -> Self {
        value.as_ref().map(N::written)
    }
}

impl<T, N: Notation<T>> Notation<Vec<T>> for Vec<N> {
    fn value(self) -> Vec<T> {
        self.into_iter().map(N::value).collect()
    }

    fn written(values: &Vec<T>) -> Self {
        values.iter().map(N::written).collect()
    }
}

impl Notation<Arc<str>> for String {
    fn value(self) -> Arc<str> {
        self.into()
    }

    fn written(value: &Arc<str>) -> Self {
        value.to_string()
    }
}

impl Notation<usize> for NonZeroUsize {
    fn value(self) -> usize {
        self.get()
    }

    fn written(value: &usize) -> Self {
        Self::new(*value).unwrap_or(Self::MIN)
    }
}

impl Notation<u32> for NonZeroU32 {
    fn value(self) -> u32 {
        self.get()
    }

    fn written(value: &u32) -> Self {
        Self::new(*value).unwrap_or(Self::MIN)
    }
}

impl<S: ReadSettings + WriteSettings + Clone> Notation<S> for SettingsTable<S> {
    fn value(self) -> S {
        self.0
    }

    fn written(value: &S) -> Self {
        Self(value.clone())
    }
}

/// A duration with its unit.
#[derive(Clone, Copy)]
pub struct HumanTime(pub Duration);

crate::settings!(notation HumanTime of Duration);

/// A number of milliseconds, written as a duration.
impl Notation<u64> for HumanTime {
    fn value(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    fn written(value: &u64) -> Self {
        Self(Duration::from_millis(*value))
    }
}

impl Serialize for HumanTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        serializer.collect_str(&format_args!("{time:#}"))
    }
}

impl<'de> Deserialize<'de> for HumanTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = HumanTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"5s\", \"500ms\" or \"2m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanTime, E> {
        let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        parsed.map(HumanTime).ok_or_else(|| {
            E::custom(format_args!("{text:?} is not a duration: write it as \"5s\", \"500ms\" or \"2m\""))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<HumanTime, E> {
        Err(E::custom(format_args!("{number} has no unit: write \"{number}s\" or \"{number}ms\"")))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<HumanTime, E> {
        Err(E::custom(format_args!("{number} has no unit: write \"{number}s\" or \"{number}ms\"")))
    }
}

/// A number of bytes, with or without a unit.
#[derive(Clone, Copy)]
pub struct ByteSize(usize);

crate::settings!(notation ByteSize of usize);

impl Notation<u64> for ByteSize {
    fn value(self) -> u64 {
        self.0 as u64
    }

    fn written(value: &u64) -> Self {
        Self(usize::try_from(*value).unwrap_or(usize::MAX))
    }
}

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let divides = |(_, bytes): &&(&str, usize)| self.0.is_multiple_of(*bytes);
        let (unit, bytes) = UNITS.iter().find(divides).unwrap_or(&UNITS[3]);
        serializer.collect_str(&format_args!("{}{unit}", self.0 / bytes))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size such as \"64KiB\" or \"256MiB\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        let size = UNITS.iter().find_map(|(unit, bytes)| {
            let number: usize = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*bytes)
        });
        size.map(ByteSize).ok_or_else(|| {
            E::custom(format_args!("{text:?} is not a size: write it as \"64KiB\" or \"256MiB\""))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<ByteSize, E> {
        usize::try_from(number)
            .map(ByteSize)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}
