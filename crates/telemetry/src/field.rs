//! The types of an event's fields: five kinds of values, each of which may be absent.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum FieldValue<'a> {
    /// No value.
    Absent,
    /// Text.
    Text(&'a str),
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A duration.
    Duration(Duration),
}

impl Serialize for FieldValue<'_> {
    /// Serializes the value. A duration becomes its seconds.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Bool(it) => serializer.serialize_bool(*it),
            Self::Duration(time) => serializer.serialize_f64(time.as_secs_f64()),
        }
    }
}

/// A type that a field of an event may have.
pub(crate) trait Field {
    /// The type as the table names it.
    const KIND: &'static str;

    fn value(&self) -> FieldValue<'_>;

    /// Returns the value for `tracing`. Durations are seconds.
    fn traced(&self) -> impl tracing::Value;
}

macro_rules! fields {
    ($($type:ty, $kind:literal, |$it:ident| $value:expr, $traced:expr;)*) => {$(
        impl Field for $type {
            const KIND: &'static str = $kind;

            fn value(&self) -> FieldValue<'_> {
                let $it = self;
                $value
            }

            fn traced(&self) -> impl tracing::Value {
                let $it = self;
                $traced
            }
        }

        impl Field for Option<$type> {
            const KIND: &'static str = concat!($kind, "?");

            fn value(&self) -> FieldValue<'_> {
                self.as_ref().map_or(FieldValue::Absent, Field::value)
            }

            fn traced(&self) -> impl tracing::Value {
                self.as_ref().map(|$it| $traced)
            }
        }
    )*};
}

fields! {
    Arc<str>, "text", |it| FieldValue::Text(it), &**it;
    &'static str, "text", |it| FieldValue::Text(it), *it;
    u64, "integer", |it| FieldValue::Integer(i64::try_from(*it).unwrap_or(i64::MAX)), *it;
    u32, "integer", |it| FieldValue::Integer((*it).into()), *it;
    usize, "integer", |it| FieldValue::Integer(i64::try_from(*it).unwrap_or(i64::MAX)), *it;
    i32, "integer", |it| FieldValue::Integer((*it).into()), *it;
    f64, "float", |it| FieldValue::Float(*it), *it;
    bool, "bool", |it| FieldValue::Bool(*it), *it;
    Duration, "duration", |it| FieldValue::Duration(*it), it.as_secs_f64();
}
