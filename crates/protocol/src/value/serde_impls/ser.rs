//! `Serialize` for this crate's types.

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{ExtensionType, base64};
use crate::value::passthrough::{self, Handed};
use crate::value::{BODY_THRESHOLD, BigInt, Blob, DateTime, Encoded, Map, NaiveDateTime, Value};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(number) => serialize_int(*number, serializer),
            Self::BigInt(number) => number.serialize(serializer),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serialize_blob(bytes, serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Map(map) => map.serialize(serializer),
            Self::DateTime(time) => time.serialize(serializer),
            Self::NaiveDateTime(time) => time.serialize(serializer),
        }
    }
}

/// Uses the smallest type that holds the number, because few formats support 128 bits.
fn serialize_int<S: Serializer>(number: i128, serializer: S) -> Result<S::Ok, S::Error> {
    if let Ok(number) = i64::try_from(number) {
        serializer.serialize_i64(number)
    } else if let Ok(number) = u64::try_from(number) {
        serializer.serialize_u64(number)
    } else {
        serializer.serialize_i128(number)
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            entries.serialize_entry(key, value)?;
        }
        entries.end()
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_blob(&self.0, serializer)
    }
}

fn serialize_blob<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_newtype_struct(passthrough::BLOB, &Lent(bytes))
}

struct Lent<'a, T>(&'a T);

impl Serialize for Lent<'_, Bytes> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.len() >= BODY_THRESHOLD && passthrough::give(|| Handed::Bytes(self.0.clone())) {
            return serializer.serialize_unit();
        }
        if serializer.is_human_readable() {
            serializer.serialize_str(&base64::encode(self.0))
        } else {
            serializer.serialize_bytes(self.0)
        }
    }
}

impl Serialize for Encoded {
    /// This crate's codec takes the bytes unchanged. Other formats get the value.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(passthrough::ENCODED, &Lent(self))
    }
}

impl Serialize for Lent<'_, Encoded> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if passthrough::is_open() {
            if self.0.has_bodies() {
                passthrough::give(|| Handed::Encoded(self.0.clone()));
                return serializer.serialize_unit();
            }
            self.0.verify_once().map_err(serde::ser::Error::custom)?;
            return serializer.serialize_bytes(self.0.head());
        }
        self.0.to_value().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<T: ExtensionType> Serialize for Lent<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(self.0.data().as_ref());
        }
        match self.0.number() {
            Some(number) => serialize_int(number, serializer),
            None => serializer.collect_str(self.0),
        }
    }
}

macro_rules! serialize_extensions {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_newtype_struct(Self::NAME, &Lent(self))
            }
        }
    )*};
}

serialize_extensions!(BigInt, DateTime, NaiveDateTime);
