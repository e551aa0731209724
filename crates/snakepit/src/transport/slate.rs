//! A page that a worker writes and that survives it: after a death it tells which calls were started, and at any time how
//! often the worker has shown that its code can run. Behind it are answers that the worker had and did not send.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

/// The size of the page.
const SIZE: u64 = 4096;
/// Where the number of beats is.
const BEATS: u64 = 24;
/// How much is kept for each CALLS that is under way, its numbers included.
const PLACE: u64 = 64 * 1024;
/// The numbers before what is kept.
const HEAD: usize = 32;
/// For more of them nothing is kept.
const MOST_PLACES: usize = 64;

/// The host's end.
#[derive(Debug)]
pub(crate) struct Slate {
    page: OwnedFd,
    places: u64,
}

/// The answers of a CALLS that were not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    /// How many of its calls were started, as far as that was noted here.
    pub(crate) started: u64,
    /// Which one the first of the answers belongs to.
    pub(crate) first: u64,
    /// The answers, one after the other.
    pub(crate) entries: Vec<u8>,
}

/// What a worker had started last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    /// The call.
    pub(crate) call: u64,
    /// Of many calls that travelled together: how many.
    pub(crate) inputs: u64,
}

impl Slate {
    /// For a worker that does so many calls at a time.
    pub(crate) fn new(concurrency: usize) -> io::Result<Self> {
        let places = concurrency.clamp(1, MOST_PLACES) as u64;
        let fd = rustix::fs::memfd_create("snakepit-slate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SIZE + places * PLACE)?;
        // The worker cannot take the page away under our eyes.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { page: fd, places })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }

    pub(crate) fn started(&self) -> io::Result<Started> {
        let mut page = [0; 16];
        let read = rustix::io::pread(&self.page, &mut page, 0)?;
        let (call, inputs) = page.split_at(8);
        match (read, call.try_into(), inputs.try_into()) {
            (16, Ok(call), Ok(inputs)) => {
                Ok(Started { call: u64::from_le_bytes(call), inputs: u64::from_le_bytes(inputs) })
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// What is kept of a CALLS. The worker has written it, and may have written anything.
    pub(crate) fn kept(&self, call: u64) -> Option<Kept> {
        (0..self.places).map(|place| SIZE + place * PLACE).find_map(|at| {
            let mut head = [0; HEAD];
            self.read(&mut head, at)?;
            let [id, started, first, length] = numbers(&head);
            if id != call || length > PLACE - HEAD as u64 {
                return None;
            }
            let mut entries = vec![0; length as usize];
            self.read(&mut entries, at + HEAD as u64)?;
            Some(Kept { started, first, entries })
        })
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Option<()> {
        let length = bytes.len();
        let read = rustix::io::pread(&self.page, bytes, at).ok()?;
        (read == length).then_some(())
    }

    /// How often the worker answered when it was asked to beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        let mut beats = [0; 8];
        let read = rustix::io::pread(&self.page, &mut beats, BEATS).ok()?;
        (read == beats.len()).then(|| u64::from_le_bytes(beats))
    }
}

/// The numbers of a head, in the order in which they stand.
fn numbers(head: &[u8; HEAD]) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(head.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    numbers
}
