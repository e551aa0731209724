//! `Deserialize` for this crate's types.
//!
//! This crate's codec puts the object into the slot and then calls `visit_unit`. Other formats ignore the newtype.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::ExtensionType;
use crate::value::passthrough::{self, Handed};
use crate::value::{BigInt, Blob, DateTime, Encoded, Map, NaiveDateTime, Value};

/// Implements `Deserialize` by a newtype of this name, whose content goes to a visitor.
macro_rules! deserialize_newtypes {
    ($($kind:ty: $name:expr, $visitor:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_newtype_struct($name, $visitor)
            }
        }
    )*};
}

deserialize_newtypes! {
    Value: passthrough::ANY_VALUE, ValueVisitor;
    // This crate's codec keeps the bytes unread. A value of another format is encoded.
    Encoded: passthrough::ENCODED, EncodedVisitor;
    Blob: passthrough::BLOB, BlobVisitor;
    BigInt: Self::NAME, ExtensionVisitor(PhantomData);
    DateTime: Self::NAME, ExtensionVisitor(PhantomData);
    NaiveDateTime: Self::NAME, ExtensionVisitor(PhantomData);
}

struct ValueVisitor;

macro_rules! converted {
    ($($method:ident($from:ty))*) => {$(
        fn $method<E>(self, value: $from) -> Result<Value, E> {
            Ok(value.into())
        }
    )*};
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        match passthrough::take() {
            Some(Handed::Value(value)) => Ok(value),
            _ => Ok(Value::Nil),
        }
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    converted! {
        visit_bool(bool)
        visit_i64(i64)
        visit_u64(u64)
        visit_i128(i128)
        visit_u128(u128)
        visit_f64(f64)
        visit_str(&str)
        visit_string(String)
        visit_bytes(&[u8])
        visit_byte_buf(Vec<u8>)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = entries.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        MapVisitor.visit_map(entries).map(Value::Map)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = Map;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Map, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry::<Value, Value>()? {
            all.push(entry);
        }
        Ok(Map::from_entries(all))
    }
}

struct EncodedVisitor;

macro_rules! encoded_as_value {
    ($($method:ident($from:ty))*) => {$(
        fn $method<E: de::Error>(self, value: $from) -> Result<Encoded, E> {
            Encoded::encode(&Value::from(value)).map_err(E::custom)
        }
    )*};
}

impl<'de> Visitor<'de> for EncodedVisitor {
    type Value = Encoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Encoded, D::Error> {
        deserializer.deserialize_any(self)
    }

    /// Texts may be long, and are not copied into a [`Value`] first.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Encoded, E> {
        Encoded::encode(text).map_err(E::custom)
    }

    encoded_as_value! {
        visit_bool(bool)
        visit_i64(i64)
        visit_u64(u64)
        visit_i128(i128)
        visit_u128(u128)
        visit_f64(f64)
        visit_bytes(&[u8])
        visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: de::Error>(self) -> Result<Encoded, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Encoded, D::Error> {
        Encoded::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<Encoded, A::Error> {
        Encoded::encode(&ValueVisitor.visit_seq(entries)?).map_err(de::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Encoded, A::Error> {
        Encoded::encode(&ValueVisitor.visit_map(entries)?).map_err(de::Error::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Encoded, E> {
        match passthrough::take() {
            Some(Handed::Encoded(encoded)) => Ok(encoded),
            _ => Encoded::encode(&()).map_err(de::Error::custom),
        }
    }
}

struct BlobVisitor;

impl<'de> Visitor<'de> for BlobVisitor {
    type Value = Blob;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Blob, D::Error> {
        deserializer.deserialize_byte_buf(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Blob, E> {
        match passthrough::take() {
            Some(Handed::Bytes(bytes)) => Ok(Blob(bytes)),
            _ => Err(E::invalid_type(de::Unexpected::Unit, &self)),
        }
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
        Ok(Blob(Bytes::copy_from_slice(bytes)))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Blob, E> {
        Ok(Blob(bytes.into()))
    }

    /// Accepts a list of small integers. Some formats turn byte strings into such a list, and serde writes `Vec<u8>` as
    /// one.
    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Blob, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = entries.next_element()? {
            bytes.push(byte);
        }
        Ok(Blob(bytes.into()))
    }
}

struct ExtensionVisitor<T>(PhantomData<T>);

impl<T: ExtensionType> ExtensionVisitor<T> {
    fn found<E: de::Error>(self, value: Option<T>, found: de::Unexpected<'_>) -> Result<T, E> {
        value.ok_or_else(|| E::invalid_value(found, &self))
    }
}

impl<'de, T: ExtensionType> Visitor<'de> for ExtensionVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(self)
        } else {
            deserializer.deserialize_bytes(self)
        }
    }

    fn visit_bytes<E: de::Error>(self, data: &[u8]) -> Result<T, E> {
        self.found(T::from_data(data), de::Unexpected::Bytes(data))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.found(text.parse().ok(), de::Unexpected::Str(text))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.found(T::from_number(number.into()), de::Unexpected::Signed(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.found(T::from_number(number.into()), de::Unexpected::Unsigned(number))
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<T, E> {
        self.found(T::from_number(number), de::Unexpected::Other("an integer"))
    }
}
