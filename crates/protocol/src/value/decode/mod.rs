//! The serde deserializer: decodes the bytes of an [`Encoded`] into any `Deserialize`.
//!
//! The bytes decide which kind the visitor gets, and the requested type decides whether it accepts that kind. The
//! request matters only where this protocol is stricter than serde: for example, a float accepts an integer only if the
//! float represents it exactly.

mod access;
mod direct;

use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer};
use serde::de::{self, Unexpected, Visitor};

use self::access::{Entries, VariantEntry};
use super::dynamic_value::exact_float;
use super::error::does_not_fit;
use super::passthrough::{self, Handed};
use super::read::{Ext, Reader, Token, too_deep};
use super::{BigInt, Encoded, MAX_DEPTH, ValueError};

pub(super) struct Decoder<'de> {
    pub(super) reader: Reader<'de>,
    source: &'de Encoded,
    depth: usize,
    keys: DuplicateKeys,
    /// How much memory lists, maps and copies may still take.
    room: usize,
    /// How many bytes of bodies may still be referenced.
    nameable: usize,
}

/// How many bytes may be referenced beyond twice the length of the bodies.
const OVERLAP: usize = 64 * 1024;

/// How a type sees a map that contains a key twice.
#[derive(Clone, Copy, PartialEq)]
enum DuplicateKeys {
    AsTheyCome,
    LastCounts,
}

impl<'de> Decoder<'de> {
    pub(super) fn new(source: &'de Encoded) -> Self {
        Self {
            reader: Reader::new(source.head()),
            source,
            depth: 0,
            keys: DuplicateKeys::AsTheyCome,
            room: source.most_memory(),
            nameable: source.bodies_len() * 2 + OVERLAP,
        }
    }

    /// Lowers the memory limit to `room`, if the limit of the value is higher.
    pub(super) fn within(self, room: usize) -> Self {
        Self { room: self.room.min(room), ..self }
    }

    /// Counts `bytes` against the memory limit.
    #[inline]
    fn take(&mut self, bytes: usize) -> Result<(), ValueError> {
        self.room = self.room.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    /// Counts a reference to a body. Bodies may overlap, but all references together may name only a little more than
    /// twice the bytes that exist: a body that is referenced a thousand times would become a thousand copies.
    #[inline]
    fn name_body(&mut self, len: u32) -> Result<(), ValueError> {
        self.nameable = self.nameable.checked_sub(len as usize).ok_or_else(named_often)?;
        Ok(())
    }

    /// Creates a decoder that shows only the last of two equal keys. It reads all keys of a map before the first entry.
    pub(super) fn last_key_counts(source: &'de Encoded) -> Self {
        Self { keys: DuplicateKeys::LastCounts, ..Self::new(source) }
    }

    pub(super) fn skip(&mut self) -> Result<(), ValueError> {
        if self.source.bodies_len() == 0 {
            return self.reader.skip();
        }
        let nameable = &mut self.nameable;
        self.reader.skip_within(MAX_DEPTH, |token, _| {
            if let Token::Ext(Ext::Body { len, .. }) = token {
                *nameable = nameable.checked_sub(len as usize).ok_or_else(named_often)?;
            }
            Ok(())
        })
    }

    pub(super) fn finish(&self) -> Result<(), ValueError> {
        match self.reader.rest.len() {
            0 => Ok(()),
            1 => Err(ValueError::malformed("a byte follows the value")),
            left => Err(ValueError::malformed(format!("{left} bytes follow the value"))),
        }
    }

    #[inline]
    fn enter(&mut self) -> Result<(), ValueError> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    fn visit<V: Visitor<'de>>(&mut self, token: Token<'de>, visitor: V) -> Result<V::Value, ValueError> {
        match token {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Int(number) => visitor.visit_i64(number),
            Token::UInt(number) => visitor.visit_u64(number),
            Token::Float(number) => visitor.visit_f64(number),
            Token::Str(text) => visitor.visit_borrowed_str(text),
            Token::Bin(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::Array(len) => self.list(len, visitor),
            Token::Map(len) => self.map(len, visitor),
            Token::Ext(Ext::BigInt(bytes)) => visit_big_int(&BigInt::from_twos_complement(bytes), visitor),
            // A type that accepts anything gets the text that JSON would have.
            Token::Ext(Ext::DateTime(time)) => visitor.visit_string(time.to_string()),
            Token::Ext(Ext::NaiveDateTime(time)) => visitor.visit_string(time.to_string()),
            Token::Ext(Ext::Body { offset, len }) => {
                self.name_body(len)?;
                visitor.visit_borrowed_bytes(self.source.body_slice(offset, len)?)
            }
        }
    }

    /// Like [`visit`](Self::visit), for a type that requested one kind. Does not turn kinds that JSON lacks into text.
    fn visit_strictly<V: Visitor<'de>>(
        &mut self,
        token: Token<'de>,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let found = match token {
            Token::Ext(Ext::DateTime(_)) => "a date-time",
            Token::Ext(Ext::NaiveDateTime(_)) => "a date-time without a zone",
            Token::Ext(Ext::BigInt(_)) => "an integer beyond 64 bits",
            token => return self.visit(token, visitor),
        };
        Err(de::Error::invalid_type(Unexpected::Other(found), &visitor))
    }

    fn list<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.enter()?;
        let mut entries = Entries::list(self, len);
        let value = visitor.visit_seq(&mut entries)?;
        entries.finish()?;
        self.depth -= 1;
        Ok(value)
    }

    fn map<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.enter()?;
        let mut entries = Entries::map(self, len)?;
        let value = visitor.visit_map(&mut entries)?;
        entries.finish()?;
        self.depth -= 1;
        Ok(value)
    }

    #[inline]
    fn integer<V: Visitor<'de>>(&mut self, name: &str, visitor: V) -> Result<V::Value, ValueError> {
        match self.reader.token()? {
            Token::Int(number) => visitor.visit_i64(number),
            Token::UInt(number) => visitor.visit_u64(number),
            Token::Ext(Ext::BigInt(bytes)) => big_integer(bytes, name, visitor),
            other => self.visit_strictly(other, visitor),
        }
    }

    fn float<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ValueError> {
        let number = match self.reader.token()? {
            Token::Float(number) => return visitor.visit_f64(number),
            Token::Int(number) => number as i128,
            Token::UInt(number) => number as i128,
            other => return self.visit_strictly(other, visitor),
        };
        match exact_float(number) {
            Some(float) => visitor.visit_f64(float),
            None => Err(ValueError::mismatch(format!("a float cannot hold {number} exactly"))),
        }
    }

    /// Accepts only text. serde's string types would accept a byte string too.
    #[inline]
    fn text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ValueError> {
        match self.reader.token()? {
            Token::Str(text) => visitor.visit_borrowed_str(text),
            Token::Bin(_) | Token::Ext(Ext::Body { .. }) => {
                Err(de::Error::invalid_type(Unexpected::Bytes(&[]), &visitor))
            }
            other => self.visit_strictly(other, visitor),
        }
    }

    /// Accepts a byte string or anything else that the type accepts instead, except text.
    fn bytes<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ValueError> {
        match self.reader.token()? {
            Token::Str(text) => Err(de::Error::invalid_type(Unexpected::Str(text), &visitor)),
            other => self.visit_strictly(other, visitor),
        }
    }

    /// Passes an object to one of this crate's own types.
    fn hand_over<V: Visitor<'de>>(&mut self, name: &str, visitor: V) -> Result<V::Value, ValueError> {
        match name {
            passthrough::ANY_VALUE => passthrough::leave(Handed::Value(self.value()?)),
            passthrough::ENCODED => {
                let start = self.reader.rest;
                self.skip()?;
                let len = start.len() - self.reader.rest.len();
                passthrough::leave(Handed::Encoded(self.source.part(&start[..len])));
            }
            _ => match self.byte_string()? {
                Ok(bytes) => passthrough::leave(Handed::Bytes(bytes)),
                Err(other) => return self.visit_strictly(other, visitor),
            },
        }
        // The visitors of these types take the object from the slot.
        visitor.visit_unit()
    }

    /// Reads the data of a big integer or of a date-time. Passes any other value to the visitor, which rejects it.
    fn extension<V: Visitor<'de>>(&mut self, name: &str, visitor: V) -> Result<V::Value, ValueError> {
        match (name, self.reader.token()?) {
            (passthrough::BIG_INT, Token::Ext(Ext::BigInt(bytes))) => visitor.visit_bytes(bytes),
            (passthrough::DATE_TIME, Token::Ext(Ext::DateTime(time))) => visitor.visit_bytes(&time.to_wire()),
            (passthrough::NAIVE_DATE_TIME, Token::Ext(Ext::NaiveDateTime(time))) => {
                visitor.visit_bytes(&time.to_wire())
            }
            (_, Token::Str(text)) => Err(de::Error::invalid_type(Unexpected::Str(text), &visitor)),
            (_, Token::Bin(bytes)) => Err(de::Error::invalid_type(Unexpected::Bytes(bytes), &visitor)),
            (_, other) => self.visit_strictly(other, visitor),
        }
    }
}

#[cold]
fn too_large() -> ValueError {
    ValueError::malformed(
        "it takes too much memory once it is decoded (the limit is four times max_frame, and at least 64 MiB): send \
         fewer entries, or one byte string in place of many numbers, or raise max_frame",
    )
}

#[cold]
fn named_often() -> ValueError {
    ValueError::malformed("its references name more than twice the bytes that the bodies of its frame have")
}

#[cold]
fn big_integer<'de, V: Visitor<'de>>(bytes: &[u8], name: &str, visitor: V) -> Result<V::Value, ValueError> {
    let number = BigInt::from_twos_complement(bytes);
    let small = i128::try_from(&number).ok();
    match (name, small) {
        ("i128", Some(number)) => visitor.visit_i128(number),
        ("u128", _) => match u128::try_from(&number) {
            Ok(number) => visitor.visit_u128(number),
            Err(_) => Err(does_not_fit(&number.to_string(), name)),
        },
        // A small number in a longer form than needed.
        (_, Some(small)) if i64::try_from(small).is_ok() => visitor.visit_i64(small as i64),
        (_, Some(small)) if u64::try_from(small).is_ok() => visitor.visit_u64(small as u64),
        _ => Err(does_not_fit(&number.to_string(), name)),
    }
}

fn visit_big_int<'de, V: Visitor<'de>>(number: &BigInt, visitor: V) -> Result<V::Value, ValueError> {
    if let Ok(number) = i128::try_from(number) {
        return match i64::try_from(number) {
            Ok(number) => visitor.visit_i64(number),
            Err(_) => match u64::try_from(number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i128(number),
            },
        };
    }
    match u128::try_from(number) {
        Ok(number) => visitor.visit_u128(number),
        Err(_) => visitor.visit_string(number.to_string()),
    }
}

macro_rules! integers {
    ($($method:ident => $name:literal),* $(,)?) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            self.integer($name, visitor)
        }
    )*};
}

macro_rules! forwarded {
    ($($method:ident => $own:ident),* $(,)?) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            self.$own(visitor)
        }
    )*};
}

macro_rules! strict {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            let token = self.reader.token()?;
            self.visit_strictly(token, visitor)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = ValueError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let token = self.reader.token()?;
        self.visit(token, visitor)
    }

    integers! {
        deserialize_i8 => "i8",
        deserialize_i16 => "i16",
        deserialize_i32 => "i32",
        deserialize_i64 => "i64",
        deserialize_i128 => "i128",
        deserialize_u8 => "u8",
        deserialize_u16 => "u16",
        deserialize_u32 => "u32",
        deserialize_u64 => "u64",
        deserialize_u128 => "u128",
    }

    forwarded! {
        deserialize_str => text,
        deserialize_string => text,
        deserialize_bytes => bytes,
        deserialize_byte_buf => bytes,
        deserialize_f32 => float,
        deserialize_f64 => float,
    }

    strict! {
        deserialize_bool
        deserialize_char
        deserialize_unit
        deserialize_map
        deserialize_identifier
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.reader.peek() == Some(rmp::Marker::Null.to_u8()) {
            self.reader.token()?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match name {
            passthrough::ANY_VALUE | passthrough::ENCODED | passthrough::BLOB => {
                self.hand_over(name, visitor)
            }
            passthrough::BIG_INT | passthrough::DATE_TIME | passthrough::NAIVE_DATE_TIME => {
                self.extension(name, visitor)
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    /// Passes a byte string as a sequence of bytes, because `Vec<u8>` requests a sequence.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let bytes = match self.reader.token()? {
            Token::Bin(bytes) => bytes,
            Token::Ext(Ext::Body { offset, len }) => {
                self.name_body(len)?;
                self.source.body_slice(offset, len)?
            }
            other => return self.visit_strictly(other, visitor),
        };
        let mut entries = SeqDeserializer::new(bytes.iter().copied());
        let value = visitor.visit_seq(&mut entries)?;
        entries.end()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.reader.token()? {
            Token::Str(variant) => visitor.visit_enum(BorrowedStrDeserializer::new(variant)),
            Token::Map(1) => {
                self.enter()?;
                let value = visitor.visit_enum(VariantEntry::new(self))?;
                self.depth -= 1;
                Ok(value)
            }
            Token::Map(len) => Err(ValueError::mismatch(format!(
                "expected a string or a map of one entry, found a map of {len} entries"
            ))),
            other => self.visit_strictly(other, visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.reader.skip_within(MAX_DEPTH - self.depth, |_, _| Ok(()))?;
        visitor.visit_unit()
    }
}
