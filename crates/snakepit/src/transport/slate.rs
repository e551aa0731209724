//! A page that a worker writes and that survives it: after a death it tells which calls were started, and at any time how
//! often the worker has shown that its code can run.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

/// The size of the page.
const SIZE: u64 = 4096;
/// Where the number of beats is.
const BEATS: u64 = 24;

/// The host's end.
#[derive(Debug)]
pub(crate) struct Slate(OwnedFd);

/// What a worker had started last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    /// The call.
    pub(crate) call: u64,
    /// Of many calls that travelled together: how many.
    pub(crate) inputs: u64,
}

impl Slate {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("snakepit-slate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SIZE)?;
        // The worker cannot take the page away under our eyes.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self(fd))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn started(&self) -> io::Result<Started> {
        let mut page = [0; 16];
        let read = rustix::io::pread(&self.0, &mut page, 0)?;
        let (call, inputs) = page.split_at(8);
        match (read, call.try_into(), inputs.try_into()) {
            (16, Ok(call), Ok(inputs)) => {
                Ok(Started { call: u64::from_le_bytes(call), inputs: u64::from_le_bytes(inputs) })
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// How often the worker answered when it was asked to beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        let mut beats = [0; 8];
        let read = rustix::io::pread(&self.0, &mut beats, BEATS).ok()?;
        (read == beats.len()).then(|| u64::from_le_bytes(beats))
    }
}
