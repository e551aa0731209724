//! Reads single tokens of MessagePack from unchecked bytes.
//!
//! Every length is compared with the number of bytes left before it is used. Knows nothing of serde.

use bytes::Buf;
use rmp::Marker;

use super::{BigInt, DateTime, MAX_DEPTH, NaiveDateTime, Value, ValueError, ext};

/// A token: a scalar, or the start of a list or a map.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    /// Only numbers above `i64::MAX`.
    UInt(u64),
    Float(f64),
    Str(&'a str),
    Bin(&'a [u8]),
    Array(usize),
    Map(usize),
    Ext(Ext<'a>),
}

/// A checked extension of the protocol.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ext<'a> {
    /// Two's complement, at least one byte, possibly longer than needed.
    BigInt(&'a [u8]),
    DateTime(DateTime),
    NaiveDateTime(NaiveDateTime),
    Body {
        offset: u32,
        len: u32,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Returns the marker of the next token, or `None` at the end.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline]
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], ValueError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ValueError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    fn u8(&mut self) -> Result<usize, ValueError> {
        Ok(self.array::<1>()?[0] as usize)
    }

    #[inline]
    fn u16(&mut self) -> Result<usize, ValueError> {
        Ok(u16::from_be_bytes(self.array()?) as usize)
    }

    #[inline]
    fn u32(&mut self) -> Result<usize, ValueError> {
        Ok(u32::from_be_bytes(self.array()?) as usize)
    }

    #[inline]
    pub(super) fn token(&mut self) -> Result<Token<'a>, ValueError> {
        let marker = Marker::from_u8(self.array::<1>()?[0]);
        Ok(match marker {
            Marker::FixPos(value) => Token::Int(value as i64),
            Marker::FixNeg(value) => Token::Int(value as i64),
            Marker::FixStr(len) => self.text(len as usize)?,
            Marker::FixMap(len) => self.map(len as usize)?,
            Marker::FixArray(len) => self.list(len as usize)?,
            Marker::Null => Token::Nil,
            Marker::True => Token::Bool(true),
            Marker::False => Token::Bool(false),
            Marker::U8 => Token::Int(self.u8()? as i64),
            Marker::U16 => Token::Int(self.u16()? as i64),
            Marker::U32 => Token::Int(self.u32()? as i64),
            Marker::U64 => unsigned(u64::from_be_bytes(self.array()?)),
            Marker::I8 => Token::Int(i8::from_be_bytes(self.array()?) as i64),
            Marker::I16 => Token::Int(i16::from_be_bytes(self.array()?) as i64),
            Marker::I32 => Token::Int(i32::from_be_bytes(self.array()?) as i64),
            Marker::I64 => Token::Int(i64::from_be_bytes(self.array()?)),
            Marker::F32 => Token::Float(f32::from_be_bytes(self.array()?) as f64),
            Marker::F64 => Token::Float(f64::from_be_bytes(self.array()?)),
            other => self.rare_token(other)?,
        })
    }

    /// Reads the longer forms. A separate function, so that the code for the common forms stays small.
    fn rare_token(&mut self, marker: Marker) -> Result<Token<'a>, ValueError> {
        let len = match marker {
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => self.u8()?,
            Marker::Str16 | Marker::Bin16 | Marker::Ext16 | Marker::Array16 | Marker::Map16 => self.u16()?,
            Marker::Str32 | Marker::Bin32 | Marker::Ext32 | Marker::Array32 | Marker::Map32 => self.u32()?,
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            _ => return Err(ValueError::malformed("the byte 0xc1 begins no value")),
        };
        match marker {
            Marker::Str8 | Marker::Str16 | Marker::Str32 => self.text(len),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => Ok(Token::Bin(self.bytes(len)?)),
            Marker::Array16 | Marker::Array32 => self.list(len),
            Marker::Map16 | Marker::Map32 => self.map(len),
            _ => {
                let kind = i8::from_be_bytes(self.array()?);
                Ok(Token::Ext(extension(kind, self.bytes(len)?)?))
            }
        }
    }

    #[inline]
    fn text(&mut self, len: usize) -> Result<Token<'a>, ValueError> {
        let bytes = self.bytes(len)?;
        std::str::from_utf8(bytes).map(Token::Str).map_err(|_| ValueError::malformed("a text is not UTF-8"))
    }

    /// Checks the length of a list. Every entry takes at least one byte, so a valid length is at most the number of
    /// bytes left.
    #[inline]
    fn list(&mut self, len: usize) -> Result<Token<'a>, ValueError> {
        if len > self.rest.len() { Err(cut_short()) } else { Ok(Token::Array(len)) }
    }

    #[inline]
    fn map(&mut self, len: usize) -> Result<Token<'a>, ValueError> {
        if len > self.rest.len() / 2 { Err(cut_short()) } else { Ok(Token::Map(len)) }
    }

    /// Skips one value of any depth, without recursion.
    pub(super) fn skip(&mut self) -> Result<(), ValueError> {
        match self.peek() {
            Some(0x80..=0x9f | 0xdc..=0xdf) => self.skip_within(MAX_DEPTH, |_, _| Ok(())),
            // A scalar does not need the array of open lists and maps.
            _ => self.token().map(drop),
        }
    }

    /// Skips one value that is nested at most `levels` deep. Calls `see` with each token and the bytes after the token.
    pub(super) fn skip_within(
        &mut self,
        levels: usize,
        mut see: impl FnMut(Token<'a>, &'a [u8]) -> Result<(), ValueError>,
    ) -> Result<(), ValueError> {
        // The number of values still to read in each open list or map.
        let mut open = [0usize; MAX_DEPTH];
        let mut depth = 0;
        loop {
            let token = self.token()?;
            see(token, self.rest)?;
            let inside = match token {
                Token::Array(len) => Some(len),
                Token::Map(len) => Some(len * 2),
                _ => None,
            };
            if let Some(entries) = inside {
                *open[..levels].get_mut(depth).ok_or_else(too_deep)? = entries;
                depth += 1;
            }
            while depth > 0 && open[depth - 1] == 0 {
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
            open[depth - 1] -= 1;
        }
    }

    /// Checks that the next value is a valid key: a scalar, or a list without any map inside. Consumes nothing.
    #[inline]
    pub(super) fn check_key(&self) -> Result<(), ValueError> {
        match self.peek() {
            Some(0x80..=0x9f | 0xdc..=0xdf) => self.check_list_key(),
            _ => Ok(()),
        }
    }

    fn check_list_key(mut self) -> Result<(), ValueError> {
        self.skip_within(MAX_DEPTH, |token, _| match token {
            Token::Map(_) => Err(ValueError::malformed("a map cannot be a key")),
            _ => Ok(()),
        })
    }

    /// Returns the key at the start of `bytes` for the path of an error. Never fails.
    #[cold]
    pub(super) fn key_for_path(bytes: &'a [u8]) -> Value {
        match Reader::new(bytes).token() {
            Ok(Token::Nil) => Value::Nil,
            Ok(Token::Bool(value)) => Value::Bool(value),
            Ok(Token::Int(number)) => Value::Int(number as i128),
            Ok(Token::UInt(number)) => Value::Int(number as i128),
            Ok(Token::Float(number)) => Value::Float(number),
            Ok(Token::Str(text)) => Value::Str(text.to_owned()),
            Ok(Token::Bin(bytes)) => Value::Bytes(bytes::Bytes::copy_from_slice(bytes)),
            Ok(Token::Ext(Ext::BigInt(bytes))) => BigInt::from_twos_complement(bytes).into(),
            _ => Value::Str("?".to_owned()),
        }
    }
}

#[inline]
fn unsigned(number: u64) -> Token<'static> {
    i64::try_from(number).map_or(Token::UInt(number), Token::Int)
}

fn extension(kind: i8, data: &[u8]) -> Result<Ext<'_>, ValueError> {
    let wrong_length = || {
        ValueError::malformed(format!("an extension of type {kind} cannot have a length of {}", data.len()))
    };
    match kind {
        ext::BIG_INT if data.is_empty() => Err(wrong_length()),
        ext::BIG_INT => Ok(Ext::BigInt(data)),
        ext::DATE_TIME => {
            let bytes: [u8; 12] = data.try_into().map_err(|_| wrong_length())?;
            let time =
                DateTime::from_wire(bytes).map_err(|error| ValueError::malformed(error.to_string()))?;
            Ok(Ext::DateTime(time))
        }
        ext::NAIVE_DATE_TIME => {
            let bytes: [u8; 8] = data.try_into().map_err(|_| wrong_length())?;
            Ok(Ext::NaiveDateTime(NaiveDateTime::from_wire(bytes)))
        }
        ext::BODY => {
            let bytes: [u8; 8] = data.try_into().map_err(|_| wrong_length())?;
            let mut bytes = bytes.as_slice();
            Ok(Ext::Body { offset: bytes.get_u32_le(), len: bytes.get_u32_le() })
        }
        ext::TIMESTAMP => {
            let time =
                DateTime::from_timestamp(data).map_err(|error| ValueError::malformed(error.to_string()))?;
            time.map(Ext::DateTime).ok_or_else(wrong_length)
        }
        _ => Err(ValueError::malformed(format!("unknown extension type {kind}"))),
    }
}

#[cold]
fn cut_short() -> ValueError {
    ValueError::malformed("the bytes end inside the value")
}

#[cold]
pub(super) fn too_deep() -> ValueError {
    ValueError::malformed(format!("nested deeper than {MAX_DEPTH} levels"))
}
