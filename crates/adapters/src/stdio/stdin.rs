//! A worker's standard input, and how much of it the worker has read: what it has not read, it has not begun.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::net::unix::pipe;

/// The host's end of the pipe.
pub(super) struct Stdin {
    pipe: pipe::Sender,
    /// How many bytes were written. Locked while some are, so that the pipe holds no more than this says.
    written: Mutex<u64>,
}

impl Stdin {
    pub(super) fn new(pipe: pipe::Sender) -> Self {
        Self { pipe, written: Mutex::new(0) }
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
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

    /// How many bytes the worker has taken out of the pipe, dead or alive; none where the system does not tell.
    pub(super) fn read(&self) -> Option<u64> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.checked_sub(rustix::io::ioctl_fionread(&self.pipe).ok()?)
    }
}
