//! The bytes that wait to be written to a worker. Small frames share one buffer; long bodies are not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::frame::{FrameKind, HEADER, Header};
use crate::value::Encoded;

/// Shorter bodies are copied, because one more slice per write costs more than the copy.
const COPIED: usize = 16 * 1024;
/// The maximum number of slices in one write.
const PIECES: usize = 32;
/// The largest buffer that is kept for the next frames.
const KEPT: usize = 256 * 1024;

/// Frames that wait to be written to a worker.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Finished pieces, written before the tail.
    pieces: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// How many bytes of the first piece, or of the tail if there is no piece, are written.
    written: usize,
}

impl Outbox {
    /// Reports whether no bytes wait to be written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.len() == self.written
    }

    /// Returns the number of bytes that wait to be written.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.tail.len() - self.written
    }

    /// Adds a frame without bodies. `payload` appends the payload to the buffer that it receives.
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

    /// Passes the next pieces to `write`, all in one call.
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

    /// Marks the next `bytes` bytes as written.
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

    /// Removes all frames. Keeps the buffer for the next ones, unless the buffer is large.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.tail.clear();
        self.written = 0;
        if self.tail.capacity() > KEPT {
            self.tail = Vec::new();
        }
    }
}
