//! [`EncodedItems`]: one or several values of a stream, which are decoded one after another where they lie.

use serde::de::DeserializeOwned;

use super::decode::Decoder;
use super::read::{Reader, Token};
use super::{Encoded, ValueError};

/// Values of a stream that came in one frame, and how far they are decoded.
#[derive(Debug, Clone)]
pub struct EncodedItems {
    payload: Encoded,
    /// Where the next value begins.
    at: u32,
    /// The number of values that follow.
    left: u32,
}

impl EncodedItems {
    /// Wraps the payload of an ITEM.
    pub fn one(item: Encoded) -> Self {
        Self { payload: item, at: 0, left: 1 }
    }

    /// Wraps the payload of an ITEMS. Only the number of values is checked; a value is checked when it is decoded.
    pub fn list(payload: Encoded) -> Result<Self, ValueError> {
        let head = payload.head();
        let mut reader = Reader::new(head);
        let Token::Array(entries @ 1..) = reader.token()? else {
            return Err(ValueError::malformed("it should be a list of items"));
        };
        let (at, left) = (u32::try_from(head.len() - reader.rest.len()), u32::try_from(entries));
        let (Ok(at), Ok(left)) = (at, left) else {
            return Err(ValueError::malformed("the list is too long"));
        };
        Ok(Self { payload, at, left })
    }

    /// Returns the number of values that are not decoded yet.
    pub fn len(&self) -> u32 {
        self.left
    }

    /// Reports whether all values are decoded.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns how many bytes the values that are not decoded yet take on the wire.
    pub fn payload_len(&self) -> usize {
        self.payload.payload_len() - self.at as usize
    }

    /// Returns the payload of the frame.
    pub fn into_payload(self) -> Encoded {
        self.payload
    }

    /// Decodes the next value, and returns it with its length on the wire. `None` if there is none. No value follows
    /// one that cannot be decoded.
    pub fn decode_next<T: DeserializeOwned>(&mut self) -> Option<(usize, Result<T, ValueError>)> {
        let is_last = self.left.checked_sub(1)? == 0;
        if self.at == 0 {
            self.left = 0;
            return Some((self.payload.payload_len(), self.payload.decode()));
        }
        let decoded = match self.decode_with(Decoder::new(&self.payload)) {
            Err(error) if error.is_duplicate_field() => {
                self.decode_with(Decoder::last_key_counts(&self.payload))
            }
            decoded => decoded,
        };
        let rest = self.payload_len();
        match decoded {
            Ok((_, end)) if is_last && end != self.payload.head().len() => {
                self.left = 0;
                Some((rest, Err(ValueError::malformed("bytes follow the items"))))
            }
            Ok((value, end)) => {
                let length = if is_last { rest } else { end - self.at as usize };
                (self.at, self.left) = (end as u32, self.left - 1);
                Some((length, Ok(value)))
            }
            Err(error) => {
                self.left = 0;
                Some((rest, Err(error)))
            }
        }
    }

    /// Decodes the next value. Returns it, and where it ends.
    fn decode_with<'a, T: DeserializeOwned>(
        &'a self,
        mut decoder: Decoder<'a>,
    ) -> Result<(T, usize), ValueError> {
        decoder.reader = Reader::new(&self.payload.head()[self.at as usize..]);
        let value = T::deserialize(&mut decoder)?;
        let end = self.payload.head().len() - decoder.reader.rest.len();
        if end == self.at as usize {
            return Err(ValueError::mismatch("the type reads nothing of the value"));
        }
        Ok((value, end))
    }
}
