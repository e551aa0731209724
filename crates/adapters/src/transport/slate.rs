//! A page of memory that a worker writes and that survives the worker. After a death it tells which calls were started; at any
//! time it counts the worker's beats. Answers that the worker has not sent yet follow the page.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::connection::Results;
use crate::adapter::HeldCall;
use crate::call::Input;
use crate::value::Encoded;

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
pub(crate) struct SlatePage {
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

/// Memory of so many bytes. The worker cannot take it away under our eyes.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn page(size: u64) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("snakepit-slate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A file without a name. If the worker shortens it, reading it fails, and nothing is known of what was started.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn page(size: u64) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("snakepit-slate-{}-{number}", std::process::id()));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(size)?;
    Ok(file.into())
}

impl Slate {
    /// For a worker that does so many calls at a time.
    pub(crate) fn new(concurrency: usize) -> io::Result<Self> {
        let places = concurrency.clamp(1, MOST_PLACES) as u64;
        Ok(Self { page: page(SIZE + places * PLACE)?, places })
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
    pub(crate) fn kept(&self, call: u64) -> Option<SlatePage> {
        (0..self.places).map(|place| SIZE + place * PLACE).find_map(|at| {
            let mut head = [0; HEAD];
            self.read(&mut head, at)?;
            let [id, started, first, length] = numbers(&head);
            if id != call || length > PLACE - HEAD as u64 {
                return None;
            }
            let mut entries = vec![0; length as usize];
            self.read(&mut entries, at + HEAD as u64)?;
            Some(SlatePage { started, first, entries })
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

    /// How many of many calls a worker that is gone had answered and begun, if known. Answers that it had not sent are handed on.
    fn how_far(
        &self,
        held: &HeldCall<Results>,
        started: Started,
        concurrency: usize,
    ) -> Option<(usize, usize)> {
        let (Input::Many(inputs), id) = (held.call.input(), held.call.id().get()) else { return None };
        let mut answered = held.data;
        let mut begun = (started.call == id).then_some(started.inputs);
        if let Some(kept) = self.kept(id) {
            let goes_on = kept.first == answered as u64;
            if let (true, Ok((count @ 1.., results))) = (goes_on, Encoded::list_of(&kept.entries))
                && answered + count <= inputs.len()
            {
                held.call.send_item(results);
                answered += count;
            }
            // While a nested call runs, the slate has that one's number; this one waits for it with the next of its calls.
            let waits = (concurrency == 1 && begun.is_none()).then_some(answered as u64 + 1);
            begun = begun.max(waits).max(Some(kept.started).filter(|started| *started > 0));
        }
        Some((answered, (begun? as usize).min(inputs.len())))
    }

    /// A call is lost with its worker, which may have told how far it came.
    pub(super) fn lose(&self, held: HeldCall<Results>, started: Option<Started>, concurrency: usize) {
        let how_far = started.and_then(|started| self.how_far(&held, started, concurrency));
        match (how_far, started) {
            (Some((answered, begun)), _) => held.call.lose_between(answered, begun),
            (None, Some(started)) if started.call != held.call.id().get() => held.call.lose_before_others(),
            (None, _) => drop(held.call),
        }
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
