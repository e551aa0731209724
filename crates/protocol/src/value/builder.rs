//! Builds the bytes of a value, or of a payload made of several: a head, and the bodies beside it.

use bytes::Bytes;
use serde::Serialize;

use super::encode::Encoder;
use super::encoded::{Bodies, BodyPart};
use super::read::{Ext, Reader, Token};
use super::{Encoded, MAX_DEPTH, ValueError, write};

/// A payload under construction. `head` is open to [`mod@write`]'s functions.
#[derive(Debug, Default)]
pub struct ValueBuilder {
    /// What was written so far, without bodies.
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

    /// Adds one value that stands inside a list or a map.
    pub(super) fn inner_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        value.serialize(&mut Encoder::new(self, 1))
    }

    /// Adds a value that is encoded already; its bodies come along without being copied.
    pub fn encoded(&mut self, value: &Encoded) -> Result<(), ValueError> {
        value.verify_once()?;
        let head = value.head();
        if !value.has_bodies() {
            self.head.extend_from_slice(head);
            return Ok(());
        }
        // Its offsets count from its own first body; here others may stand before it.
        let mut copied = 0;
        let mut reader = Reader::new(head);
        reader.skip_within(MAX_DEPTH, |token, rest| {
            if let Token::Ext(Ext::Body { offset, len }) = token {
                let end = head.len() - rest.len();
                // The reference takes ten bytes in its shortest form, and longer forms end the same way.
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

    /// All that was added, as one payload.
    pub fn finish(self) -> Encoded {
        Encoded::from_parts(Bytes::from(self.head), Bodies::from_parts(self.parts))
    }

    /// Gives the head's memory back for the next value. For small heads one copy is less than what an allocation
    /// grows through on its way.
    pub(super) fn finish_copied(self) -> (Encoded, Vec<u8>) {
        let head = Bytes::copy_from_slice(&self.head);
        (Encoded::from_parts(head, Bodies::from_parts(self.parts)), self.head)
    }
}

#[cold]
pub(super) fn too_long(what: &str) -> ValueError {
    ValueError::unsendable(format!("{what} cannot be longer than 4 GiB"))
}
