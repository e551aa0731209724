//! What is to be written to a worker: small frames gathered in one piece of memory, long bodies left where they are.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::frame::{FrameKind, HEADER, Header};
use crate::value::Encoded;

/// Bodies below this are copied: one more piece to write costs more.
const COPIED: usize = 16 * 1024;
/// How many pieces go into one write.
const PIECES: usize = 32;
/// Memory above this is not kept for the next frames.
const KEPT: usize = 256 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Finished pieces, written before the tail.
    pieces: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// How much of the first piece (or of the tail, if there is none) is written.
    written: usize,
}

impl Outbox {
    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.len() == self.written
    }

    /// How many bytes wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.tail.len() - self.written
    }

    /// Adds a frame without bodies; `payload` appends to what it is given.
    pub fn frame(&mut self, kind: FrameKind, call: u64, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = self.tail.len();
        let header = Header { length: 0, kind, has_bodies: false, has_more: false, call };
        header.write_to(&mut self.tail);
        payload(&mut self.tail);
        let length = (self.tail.len() - start - HEADER) as u32;
        self.tail[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Adds a frame whose payload is a value.
    pub fn value_frame(&mut self, kind: FrameKind, call: u64, value: &Encoded) {
        let (length, has_bodies) = (value.payload_len(), value.has_bodies());
        let header = Header { length, kind, has_bodies, has_more: false, call };
        header.write_to(&mut self.tail);
        value.write_head_to(&mut self.tail);
        for body in value.bodies() {
            if body.len() < COPIED {
                self.tail.extend_from_slice(body);
            } else {
                self.seal();
                self.pieces.push_back(body.clone());
            }
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    /// Hands the pieces to be written next to a write, in one call.
    pub fn write_with<T>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        if self.pieces.is_empty() {
            return write(&[IoSlice::new(&self.tail[self.written..])]);
        }
        let mut slices = Vec::with_capacity(PIECES);
        let mut skip = self.written;
        for piece in self.pieces.iter().map(|piece| &piece[..]).chain([&self.tail[..]]).take(PIECES) {
            slices.push(IoSlice::new(&piece[skip..]));
            skip = 0;
        }
        write(&slices)
    }

    /// So many bytes were written.
    pub fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        while let Some(first) = self.pieces.front() {
            if self.written < first.len() {
                return;
            }
            self.written -= first.len();
            self.pieces.pop_front();
        }
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.tail.clear();
        self.written = 0;
        if self.tail.capacity() > KEPT {
            self.tail = Vec::new();
        }
    }
}
