//! A worker's standard input, and how much of it the worker has read. The worker has not begun what it has not read.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::net::unix::pipe;

use crate::pipe_buffer::{PipeBuffer, USUAL_ROOM};

/// The host's end of the pipe.
pub(super) struct Stdin {
    pipe: pipe::Sender,
    room: PipeBuffer,
    /// The number of bytes written. Locked during a write, so that the pipe never holds more than this number.
    written: Mutex<u64>,
}

impl Stdin {
    pub(super) fn new(pipe: pipe::Sender) -> Self {
        Self { pipe, room: PipeBuffer::default(), written: Mutex::new(0) }
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > USUAL_ROOM {
            self.room.make_large(&self.pipe);
        }
        while !bytes.is_empty() {
            self.pipe.writable().await?;
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            match self.pipe.try_write(bytes) {
                Ok(count) => {
                    *written += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that the worker has taken out of the pipe, whether or not it still runs. Returns
    /// `None` if the system does not provide it.
    pub(super) fn read(&self) -> Option<u64> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.checked_sub(rustix::io::ioctl_fionread(&self.pipe).ok()?)
    }
}
