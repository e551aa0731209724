//! Decodes a [`Value`] directly from the bytes, without serde.

use bytes::Bytes;

use super::Decoder;
use crate::value::read::{Ext, Reader, Token};
use crate::value::{BigInt, Map, Value, ValueError};

/// The memory that an allocation takes besides its bytes. `KEY` is the memory per map entry to find duplicate keys.
const ALLOCATION: usize = 16;
const KEY: usize = 32;
/// The most entries for which memory is reserved in advance, so that a false length cannot reserve much.
const FIRST_ROOM: usize = 256;
/// Byte strings of at least this length are not copied. They share the memory of their frame.
const SHARED: usize = 4096;

impl<'de> Decoder<'de> {
    pub(in crate::value) fn value(&mut self) -> Result<Value, ValueError> {
        let token = self.reader.token()?;
        self.value_of(token)
    }

    fn value_of(&mut self, token: Token<'de>) -> Result<Value, ValueError> {
        Ok(match token {
            Token::Nil => Value::Nil,
            Token::Bool(value) => Value::Bool(value),
            Token::Int(number) => Value::Int(i128::from(number)),
            Token::UInt(number) => Value::Int(i128::from(number)),
            Token::Float(number) => Value::Float(number),
            Token::Str(text) => {
                self.take(text.len() + ALLOCATION)?;
                Value::Str(text.to_owned())
            }
            Token::Bin(bytes) => {
                self.take(ALLOCATION)?;
                Value::Bytes(self.share(bytes))
            }
            Token::Array(len) => Value::List(self.list_of_values(len)?),
            Token::Map(len) => Value::Map(self.map_of_values(len)?),
            Token::Ext(Ext::BigInt(bytes)) => BigInt::from_twos_complement(bytes).into(),
            Token::Ext(Ext::DateTime(time)) => Value::DateTime(time),
            Token::Ext(Ext::NaiveDateTime(time)) => Value::NaiveDateTime(time),
            Token::Ext(Ext::Body { offset, len }) => Value::Bytes(self.body(offset, len)?),
        })
    }

    /// Reads a byte string. Returns the token in `Err` if the next value is something else.
    pub(super) fn byte_string(&mut self) -> Result<Result<Bytes, Token<'de>>, ValueError> {
        Ok(match self.reader.token()? {
            Token::Bin(bytes) => Ok(self.share(bytes)),
            Token::Ext(Ext::Body { offset, len }) => Ok(self.body(offset, len)?),
            other => Err(other),
        })
    }

    /// Copies a short byte string, so that it does not keep the whole frame in memory.
    fn share(&self, bytes: &'de [u8]) -> Bytes {
        if bytes.len() < SHARED { Bytes::copy_from_slice(bytes) } else { self.source.head_bytes(bytes) }
    }

    fn body(&mut self, offset: u32, len: u32) -> Result<Bytes, ValueError> {
        self.name_body(len)?;
        if (len as usize) < SHARED {
            return self.source.body_slice(offset, len).map(Bytes::copy_from_slice);
        }
        self.source.body(offset, len)
    }

    fn list_of_values(&mut self, len: usize) -> Result<Vec<Value>, ValueError> {
        self.enter()?;
        self.take(len * size_of::<Value>())?;
        let mut list = Vec::with_capacity(len.min(FIRST_ROOM));
        for index in 0..len {
            list.push(self.value().map_err(|error| error.at_index(index))?);
        }
        self.depth -= 1;
        Ok(list)
    }

    fn map_of_values(&mut self, len: usize) -> Result<Map, ValueError> {
        self.enter()?;
        self.take(len * (2 * size_of::<Value>() + KEY))?;
        let mut entries = Vec::with_capacity(len.min(FIRST_ROOM));
        for _ in 0..len {
            let start = self.reader.rest;
            self.reader.check_key()?;
            let key = self.value()?;
            let value = self.value().map_err(|error| error.at_key(&Reader::key_for_path(start)))?;
            entries.push((key, value));
        }
        self.depth -= 1;
        Ok(Map::from_entries(entries))
    }
}
