//! Builds the bytes of a value, or of a payload that consists of several values: a head and its bodies.

use bytes::Bytes;
use serde::Serialize;

use super::encode::Encoder;
use super::encoded::{Bodies, BodyPart};
use super::read::{Ext, Reader, Token};
use super::{Encoded, MAX_DEPTH, ValueError, write};

/// A payload under construction. The functions of [`mod@write`] can append to `head`.
#[derive(Debug, Default)]
pub struct ValueBuilder {
    /// The bytes written so far, without bodies.
    pub head: Vec<u8>,
    parts: Vec<BodyPart>,
    bodies_len: u32,
}

impl ValueBuilder {
    pub(super) fn with_head(head: Vec<u8>) -> Self {
        Self { head, ..Self::default() }
    }

    /// Adds one value.
    pub fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        value.serialize(&mut Encoder::new(self, 0))
    }

    /// Adds one value inside a list or a map.
    pub(crate) fn inner_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        value.serialize(&mut Encoder::new(self, 1))
    }

    /// Adds a value that is already encoded. Shares its bodies instead of copying them.
    pub fn encoded(&mut self, value: &Encoded) -> Result<(), ValueError> {
        value.verify_once()?;
        let head = value.head();
        if !value.has_bodies() {
            self.head.extend_from_slice(head);
            return Ok(());
        }
        // The offsets in `head` count from the value's own first body. In this payload, other bodies may come first.
        let mut copied = 0;
        let mut reader = Reader::new(head);
        reader.skip_within(MAX_DEPTH, |token, rest| {
            if let Token::Ext(Ext::Body { offset, len }) = token {
                let end = head.len() - rest.len();
                // A reference has ten bytes in its shortest form. Longer forms end with the same eight bytes.
                self.head.extend_from_slice(&head[copied..end - 8]);
                let offset = self.add_body(value.body(offset, len)?)?;
                self.head.extend_from_slice(&offset.to_le_bytes());
                self.head.extend_from_slice(&len.to_le_bytes());
                copied = end;
            }
            Ok(())
        })?;
        self.head.extend_from_slice(&head[copied..]);
        Ok(())
    }

    /// Adds a byte string as a body.
    pub(super) fn body(&mut self, body: Bytes) -> Result<(), ValueError> {
        let len = u32::try_from(body.len()).map_err(|_| too_long("a byte string"))?;
        let offset = self.add_body(body)?;
        write::body(&mut self.head, offset, len);
        Ok(())
    }

    fn add_body(&mut self, body: Bytes) -> Result<u32, ValueError> {
        let offset = self.bodies_len;
        let end = u32::try_from(body.len()).ok().and_then(|len| offset.checked_add(len));
        self.bodies_len = end.ok_or_else(|| too_long("all byte strings together"))?;
        self.parts.push(BodyPart { offset, bytes: body });
        Ok(offset)
    }

    /// Returns everything that was added, as one payload.
    pub fn finish(self) -> Encoded {
        Encoded::from_parts(Bytes::from(self.head), Bodies::from_parts(self.parts))
    }

    /// Like [`finish`](Self::finish), with a copy of the head. Also returns the memory of the head, for the next value.
    /// For a small head, one copy is cheaper than growing a new allocation step by step.
    pub(super) fn finish_as(self, copy: Bytes) -> (Encoded, Vec<u8>) {
        (Encoded::from_parts(copy, Bodies::from_parts(self.parts)), self.head)
    }
}

#[cold]
pub(super) fn too_long(what: &str) -> ValueError {
    ValueError::unsendable(format!("{what} cannot be longer than 4 GiB"))
}
