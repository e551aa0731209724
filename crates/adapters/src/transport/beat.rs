//! Asks a worker to show that its code can run: a byte through a pipe, answered by a number on the slate.

use std::io;
use std::os::fd::OwnedFd;

/// The host's end of the pipe.
#[derive(Debug)]
pub(crate) struct BeatPipe(OwnedFd);

impl BeatPipe {
    /// The pipe, and the end for the worker. Only ours does not block: a thread of the worker waits at its end.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        Ok((Self(writer.into()), reader.into()))
    }

    /// Asks. A pipe that is full has questions enough in it, and one without a reader belongs to a worker that is about to
    /// be missed anyway.
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
        // More than any pipe holds.
        (0..=1 << 20).for_each(|_| pipe.ask());
        assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(64));
        drop(reader);
        pipe.ask();
    }
}
