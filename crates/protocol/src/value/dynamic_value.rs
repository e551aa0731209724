//! [`Value`]: a value of any kind.

use std::ops::Index;

use bytes::Bytes;

use super::{BigInt, DateTime, Map, NaiveDateTime};

/// A value of any kind that can travel.
///
/// ```
/// use snakepit::value::{Encoded, Value};
///
/// let answer = Encoded::encode(&serde_json::json!({"rows": [{"price": 9.5}]})).unwrap().to_value().unwrap();
/// assert_eq!(answer["rows"][0]["price"].as_f64(), Some(9.5));
/// assert_eq!(answer.to_string(), r#"{"rows":[{"price":9.5}]}"#);
/// ```
///
/// In JSON and other formats that people read, byte strings become base64 (standard alphabet, padded), date-times
/// become RFC 3339, and integers beyond 128 bits become decimal text; other formats get bytes for all three. A value
/// that is read from JSON has none of these kinds: text stays text.
#[derive(Clone, Default, PartialEq)]
pub enum Value {
    /// The absence of a value: `None` in Python.
    #[default]
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer of at most 128 bits.
    Int(i128),
    /// An integer that does not fit in an `i128`. `Value::from` turns a smaller one into an [`Int`](Self::Int).
    BigInt(BigInt),
    /// A float. A float with an integral value is still a float.
    Float(f64),
    /// Text.
    Str(String),
    /// A byte string.
    Bytes(Bytes),
    /// A list.
    List(Vec<Value>),
    /// A map.
    Map(Map),
    /// A date-time with an offset from UTC.
    DateTime(DateTime),
    /// A date-time without a zone.
    NaiveDateTime(NaiveDateTime),
}

impl Value {
    /// Reports whether the value is nil.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Returns the boolean, or `None` for another kind.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// Returns the integer, or `None` for another kind or an integer that does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128().and_then(|number| number.try_into().ok())
    }

    /// Returns the integer, or `None` for another kind or an integer that does not fit.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128().and_then(|number| number.try_into().ok())
    }

    /// Returns the integer, or `None` for another kind or an integer that does not fit.
    pub fn as_i128(&self) -> Option<i128> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// Returns the float, or an integer that a float represents exactly.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Int(number) => exact_float(*number),
            _ => None,
        }
    }

    /// Returns the text, or `None` for another kind.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// Returns the byte string, or `None` for another kind.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// Returns the entries of the list, or `None` for another kind.
    pub fn as_list(&self) -> Option<&[Value]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// Returns the map, or `None` for another kind.
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// Returns the entry of a map with this text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map()?.get(key)
    }
}

/// Converts the integer to a float if the float is the same number.
pub(super) fn exact_float(number: i128) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "compared right after")]
    let float = number as f64;
    // `i128::MAX` becomes the float 2^127, and the cast back saturates to `i128::MAX` again.
    (float as i128 == number && number != i128::MAX).then_some(float)
}

impl Index<&str> for Value {
    type Output = Value;

    /// Returns the entry of a map. Returns nil if the value is not a map or has no such key.
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Nil)
    }
}

impl Index<usize> for Value {
    type Output = Value;

    /// Returns the entry of a list. Returns nil if the value is not a list or is too short.
    fn index(&self, index: usize) -> &Value {
        self.as_list().and_then(|list| list.get(index)).unwrap_or(&Value::Nil)
    }
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Value {
            fn from(number: $integer) -> Self {
                Self::Int(number as i128)
            }
        }
    )*};
}

// `u8` is missing, so that `Vec<u8>` becomes a byte string and not a list.
from_integers!(i8, i16, i32, i64, i128, isize, u16, u32, u64, usize);

impl From<u128> for Value {
    fn from(number: u128) -> Self {
        BigInt::from(number).into()
    }
}

impl From<BigInt> for Value {
    fn from(number: BigInt) -> Self {
        i128::try_from(&number).map_or(Self::BigInt(number), Self::Int)
    }
}

macro_rules! from_kinds {
    ($($from:ty => $kind:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

from_kinds! {
    bool => Bool,
    f32 => Float,
    f64 => Float,
    &str => Str,
    String => Str,
    Bytes => Bytes,
    Map => Map,
    DateTime => DateTime,
    NaiveDateTime => NaiveDateTime,
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Nil
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes))
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}
