//! The host's messages: frames from a stream, with their descriptors.
//!
//! Not every system has packet sockets, so a frame has a length, the number of its descriptors, and its bytes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::libc_abi::EMFILE;
use crate::sys;
use crate::wire::{MAX_FDS, MAX_ORDERS};

const HEAD: usize = 8;
const LARGEST: usize = MAX_ORDERS + 4096;

/// A message and its descriptors. The list is empty if not all of them could be received.
pub(crate) type Frame = (Vec<u8>, Vec<OwnedFd>);

#[derive(Default)]
pub(crate) struct FrameReader {
    bytes: Vec<u8>,
    /// The descriptors of each frame that has any, in the order of the frames.
    fds: VecDeque<Vec<OwnedFd>>,
}

impl FrameReader {
    /// Reads what has arrived. Waits for data if the socket blocks. Fails if the host is gone.
    pub(crate) fn fill(&mut self, socket: &UnixStream) -> Result<()> {
        let mut chunk = vec![0; 64 * 1024];
        match sys::receive(socket.as_raw_fd(), &mut chunk) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((received, fds)) => {
                self.bytes.extend_from_slice(&chunk[..received]);
                self.fds.extend(fds);
                Ok(())
            }
            Err(error) if sys::errno(&error) == EMFILE => {
                // Some systems report lost descriptors with this error, and deliver the bytes next time.
                self.fds.push_back(Vec::new());
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the next whole frame. Fails if no host would send such a frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>> {
        let Some((len, rest)) = self.bytes.split_first_chunk().map(|(len, rest)| (number(*len), rest)) else {
            return Ok(None);
        };
        let Some((count, rest)) = rest.split_first_chunk().map(|(count, rest)| (number(*count), rest)) else {
            return Ok(None);
        };
        if len > LARGEST || count > MAX_FDS {
            return Err(sys::not_understood());
        }
        if rest.len() < len {
            return Ok(None);
        }
        let mut fds = Vec::new();
        if count > 0 {
            fds = self.fds.pop_front().unwrap_or_default();
            if fds.len() != count {
                fds.clear();
            }
        }
        let rest = self.bytes.split_off(HEAD + len);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        frame.drain(..HEAD);
        Ok(Some((frame, fds)))
    }
}

fn number(bytes: [u8; HEAD / 2]) -> usize {
    u32::from_le_bytes(bytes) as usize
}

/// Sends a message as one frame.
pub(crate) fn send(mut socket: &UnixStream, message: &[u8]) -> Result<()> {
    socket.write_all(&frame(message))
}

/// Returns the frame of a message: its length and its bytes.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = (message.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(message);
    frame
}
