//! A page of memory that a worker writes and that survives the worker. It records which calls were started, for use
//! after a death, and counts the worker's beats. Answers that the worker has not sent yet follow the page.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::connection::Results;
use crate::adapter::HeldCall;
use crate::call::Input;
use crate::value::Encoded;

/// The size of the page.
const SIZE: u64 = 4096;
/// The offset of the number of beats.
const BEATS: u64 = 24;
/// The size of the record of a running CALLS, including its numbers.
const PLACE: u64 = 64 * 1024;
/// The size of the numbers at the beginning of a record.
const HEAD: usize = 32;
/// The maximum number of records. Further CALLS have none.
const MOST_PLACES: usize = 64;

/// The host's end of a slate.
#[derive(Debug)]
pub(crate) struct Slate {
    page: OwnedFd,
    places: u64,
}

/// The record of a CALLS: its unsent answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlatePage {
    /// The number of its calls that were started, according to this record.
    pub(crate) started: u64,
    /// The position of the call that the first answer belongs to.
    pub(crate) first: u64,
    /// The answers, one after another.
    pub(crate) entries: Vec<u8>,
}

/// The last call that a worker started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    /// The number of the call.
    pub(crate) call: u64,
    /// If the call is a CALLS, the number of its inputs that were started.
    pub(crate) inputs: u64,
}

/// Creates memory of this size. The worker cannot shrink it.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn page(size: u64) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("snakepit-slate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Creates an unnamed file. If the worker truncates it, reading it fails, and it is unknown what was started.
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
    /// Creates the slate of a worker that runs this many calls at the same time.
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

    /// Returns the record of a CALLS. The worker wrote the record, so it may contain anything.
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

    /// Returns how often the worker has answered a request for a beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        let mut beats = [0; 8];
        let read = rustix::io::pread(&self.page, &mut beats, BEATS).ok()?;
        (read == beats.len()).then(|| u64::from_le_bytes(beats))
    }

    /// Returns how many inputs of a CALLS a dead worker had answered and begun, if known. Passes on the answers that
    /// it had not sent.
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
            // While a nested call runs, the slate names that call. The next input of this CALLS waits for it.
            let waits = (concurrency == 1 && begun.is_none()).then_some(answered as u64 + 1);
            begun = begun.max(waits).max(Some(kept.started).filter(|started| *started > 0));
        }
        Some((answered, (begun? as usize).min(inputs.len())))
    }

    /// Reports that a call is lost with its worker, and how far the worker came with it if that is known.
    pub(super) fn lose(&self, held: HeldCall<Results>, started: Option<Started>, concurrency: usize) {
        let how_far = started.and_then(|started| self.how_far(&held, started, concurrency));
        match (how_far, started) {
            (Some((answered, begun)), _) => held.call.lose_between(answered, begun),
            (None, Some(started)) if started.call != held.call.id().get() => held.call.lose_before_others(),
            (None, _) => drop(held.call),
        }
    }
}

/// Returns the numbers at the beginning of a record, in order.
fn numbers(head: &[u8; HEAD]) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(head.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    numbers
}
