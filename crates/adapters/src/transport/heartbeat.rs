//! Asks a worker to prove that its code can run: by a byte through a pipe, which the worker answers by a number on
//! the slate.

use std::io;
use std::os::fd::OwnedFd;

/// The host's end of the pipe.
#[derive(Debug)]
pub(crate) struct BeatPipe(OwnedFd);

impl BeatPipe {
    /// Creates the pipe. Returns the host's end and the worker's. Only the host's end is non-blocking, because a
    /// thread of the worker waits at the other.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        Ok((Self(writer.into()), reader.into()))
    }

    /// Asks for a beat. A full pipe already holds enough requests, and a pipe without a reader belongs to a worker
    /// whose end is about to be noticed anyway.
    pub(crate) fn ask(&self) {
        let _ = rustix::io::write(&self.0, b".");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_never_blocks_also_when_nobody_reads() {
        let (pipe, reader) = BeatPipe::new().expect("a pipe");
        let mut bytes = [0; 64];
        pipe.ask();
        assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(1));
        // More bytes than any pipe holds.
        (0..=1 << 20).for_each(|_| pipe.ask());
        assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(64));
        drop(reader);
        pipe.ask();
    }
}
