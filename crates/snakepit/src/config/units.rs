//! Quantities with their units: `"5s"`, `"256MiB"`.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A duration, as people write it.
#[derive(Clone, Copy)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"5s\", \"500ms\" or \"2m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        parsed.map(Time).ok_or_else(|| {
            E::custom(format_args!("{text:?} is no duration: write it as \"5s\", \"500ms\" or \"2m\""))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Time, E> {
        Err(E::custom(format_args!("{number} has no unit: write \"{number}s\" or \"{number}ms\"")))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Time, E> {
        Err(E::custom(format_args!("{number} has no unit: write \"{number}s\" or \"{number}ms\"")))
    }
}

/// A number of bytes.
#[derive(Clone, Copy)]
pub(super) struct Size(pub(super) usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size such as \"64KiB\" or \"256MiB\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        let size = UNITS.iter().find_map(|(unit, bytes)| {
            let number: usize = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*bytes)
        });
        size.map(Size).ok_or_else(|| {
            E::custom(format_args!("{text:?} is no size: write it as \"64KiB\" or \"256MiB\""))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Size, E> {
        usize::try_from(number).map(Size).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}
