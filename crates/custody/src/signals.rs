//! Signals that are noted: a handler that writes down which one came, and a thread that reads the notes.
//!
//! Owns the handler, the pipe that it writes to, and what was there before. What a signal means is none of its
//! business. Nothing here is set up unless somebody asks by [`SignalNotes::take`].
//!
//! The pipe is never closed, and every note carries the number of the taking that it belongs to: a handler may still
//! be on its way in another thread when the signals are given back, and must write neither into a descriptor that is
//! somebody else's by then nor a note that the next one takes for its own.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Pid, startup};

/// A signal that can be noted: one that asks for something, and is not the report of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Signal(i32);

impl Signal {
    /// What `kill`, container engines and service managers send.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// Ctrl-C.
    pub const INT: Self = Self(libc::SIGINT);
    /// The terminal is gone.
    pub const HUP: Self = Self(libc::SIGHUP);
    /// Ctrl-\.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// The first without a meaning of its own.
    pub const USR1: Self = Self(libc::SIGUSR1);
    /// The second without a meaning of its own.
    pub const USR2: Self = Self(libc::SIGUSR2);

    /// `None` for what is not a signal, for KILL and STOP, and for faults: a handler that returns from one runs into
    /// it again.
    pub fn new(raw: i32) -> Option<Self> {
        let never = [
            libc::SIGKILL,
            libc::SIGSTOP,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGSYS,
        ];
        ((1..=64).contains(&raw) && !never.contains(&raw)).then_some(Self(raw))
    }

    /// The number.
    pub fn as_raw(self) -> i32 {
        self.0
    }

    /// Whether whoever started this process had set it to be ignored, as `nohup` does.
    pub fn was_ignored_at_start(self) -> bool {
        startup::ignored_signals() & (1 << (self.0 - 1)) != 0
    }
}

/// Why signals cannot be noted. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotesError {
    /// Somebody has the notes already.
    #[error("the signals of this process are noted for somebody else already")]
    Taken,
    /// No pipe for the notes.
    #[error("cannot make a pipe for the notes of signals")]
    Pipe(#[source] io::Error),
    /// The system refuses a handler.
    #[error("cannot set a handler for signal {}", .signal.as_raw())]
    Handler {
        /// For which signal.
        signal: Signal,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// The handler's side: the descriptor (lower half, plus one) and the number of the taking (upper half); 0 is nobody's.
static DESK: AtomicU64 = AtomicU64::new(0);
/// The process that the notes are for. A forked copy has the handlers, too, but is another process.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The library's side.
static OFFICE: Mutex<Office> = Mutex::new(Office { pipe: None, takings: 0, taken: false });

struct Office {
    pipe: Option<Arc<Pipe>>,
    takings: u32,
    taken: bool,
}

#[derive(Debug)]
struct Pipe {
    owner: Pid,
    reader: PipeReader,
    writer: PipeWriter,
}

/// The signals that are noted, from [`SignalNotes::take`] to [`SignalNotes::give_back`], or until it is dropped.
#[derive(Debug)]
pub struct SignalNotes {
    pipe: Arc<Pipe>,
    taking: u32,
    given_back: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// What was there before each signal that is noted.
    before: Vec<(Signal, Action)>,
    ignored: Vec<Signal>,
}

#[derive(Clone, Copy)]
struct Action(libc::sigaction);

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Action({:#x})", self.0.sa_sigaction)
    }
}

impl SignalNotes {
    /// Sets the handler for these signals. Calls that it interrupts go on (`SA_RESTART`).
    ///
    /// Whatever handled them before does not hear of them until they are given back. Those that were ignored when the
    /// process was started stay as they are.
    pub fn take(signals: &[Signal]) -> Result<Self, NotesError> {
        let here = Pid::current();
        let notes = {
            let mut office = office();
            // A forked copy starts anew: what its original has taken is not its own.
            let pipe = office.pipe.as_ref().filter(|pipe| pipe.owner == here).cloned();
            if office.taken && pipe.is_some() {
                return Err(NotesError::Taken);
            }
            let pipe = pipe.map_or_else(|| Pipe::new(here), Ok).map_err(NotesError::Pipe)?;
            office.takings = office.takings.wrapping_add(1);
            office.taken = true;
            office.pipe = Some(Arc::clone(&pipe));
            let taking = office.takings;
            let desk = u64::from(taking) << 32 | (pipe.writer.as_raw_fd() as u64 + 1);
            DESK.store(desk, Ordering::SeqCst);
            OWNER.store(here.as_raw(), Ordering::SeqCst);
            Self { pipe, taking, given_back: AtomicBool::new(false), held: Mutex::default() }
        };
        notes.add(signals)?;
        Ok(notes)
    }

    /// Notes these as well. What is noted already, or was ignored at the start, stays as it is.
    pub fn add(&self, signals: &[Signal]) -> Result<(), NotesError> {
        let mut held = self.held();
        if self.is_given_back() {
            return Ok(());
        }
        let known = held.before.len();
        for &signal in signals {
            if held.before.iter().any(|(taken, _)| *taken == signal) || held.ignored.contains(&signal) {
                continue;
            }
            if signal.was_ignored_at_start() {
                held.ignored.push(signal);
                continue;
            }
            match exchange(signal, Some(&ours())) {
                Ok(before) => held.before.push((signal, before)),
                Err(source) => {
                    for (signal, before) in held.before.drain(known..) {
                        put_back(signal, before);
                    }
                    return Err(NotesError::Handler { signal, source });
                }
            }
        }
        Ok(())
    }

    /// The signals that are noted.
    pub fn noted(&self) -> Vec<Signal> {
        self.held().before.iter().map(|(signal, _)| *signal).collect()
    }

    /// The signals that were asked for and stay ignored, because they were when the process was started.
    pub fn ignored(&self) -> Vec<Signal> {
        self.held().ignored.clone()
    }

    /// Waits for the next signal; for a thread that does nothing else. `None` once they are given back.
    pub fn next(&self) -> Option<Signal> {
        while !self.is_given_back() && Pid::current() == self.pipe.owner {
            let mut note = [0; NOTE];
            match (&self.pipe.reader).read_exact(&mut note) {
                Ok(()) => {
                    let (taking, signal) = read_note(note);
                    // Of another taking: its handler was late. Number 0 is a nudge.
                    if let Some(signal) = Signal::new(signal).filter(|_| taking == self.taking) {
                        return Some(signal);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Puts back exactly what was there, except where somebody has replaced our handler meanwhile. For good.
    pub fn give_back(&self) {
        let mut held = self.held();
        if self.given_back.swap(true, Ordering::SeqCst) || Pid::current() != self.pipe.owner {
            return;
        }
        for (signal, before) in held.before.drain(..) {
            put_back(signal, before);
        }
        DESK.store(0, Ordering::SeqCst);
        office().taken = false;
        // Whoever waits for the next one is told. A full pipe needs no nudge: there is something to read.
        let _ = rustix::io::write(&self.pipe.writer, &write_note(self.taking, 0));
    }

    fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::SeqCst)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SignalNotes {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Pipe {
    fn new(owner: Pid) -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        // The handler must not wait; the reader has to.
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(Self { owner, reader, writer }))
    }
}

fn office() -> MutexGuard<'static, Office> {
    OFFICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A note's length. Far below `PIPE_BUF`, so it is written and read whole or not at all.
const NOTE: usize = 8;

const fn write_note(taking: u32, signal: i32) -> [u8; NOTE] {
    ((taking as u64) << 32 | signal as u64).to_ne_bytes()
}

const fn read_note(note: [u8; NOTE]) -> (u32, i32) {
    let note = u64::from_ne_bytes(note);
    ((note >> 32) as u32, note as u32 as i32)
}

/// The handler. It may interrupt anything, so it uses nothing but atomics and calls that POSIX allows here.
extern "C" fn write_down(signal: libc::c_int) {
    let errno = errno_place();
    // SAFETY: the place of this thread's errno, which lives as long as the thread does.
    let kept = unsafe { *errno };
    // SAFETY: no precondition.
    let here = unsafe { libc::getpid() };
    if here == OWNER.load(Ordering::SeqCst) {
        let desk = DESK.load(Ordering::SeqCst);
        if desk != 0 {
            let note = write_note((desk >> 32) as u32, signal);
            let pipe = (desk as u32 - 1) as i32;
            // SAFETY: the bytes are on this stack, and the pipe is never closed. A full one is left as it is: whoever
            // reads it has enough to read.
            unsafe { libc::write(pipe, note.as_ptr().cast(), note.len()) };
        }
    } else {
        // A forked copy, of which nobody here knows: it does what it would without us, once the handler returns and
        // the signal is no longer blocked.
        // SAFETY: the all-zero sigaction is the default action with an empty mask; both calls are async-signal-safe.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

fn errno_place() -> *mut libc::c_int {
    // SAFETY: no precondition; the call only tells where errno is.
    #[cfg(target_os = "linux")]
    return unsafe { libc::__errno_location() };
    // SAFETY: the same by the name that the BSDs have for it.
    #[cfg(not(target_os = "linux"))]
    return unsafe { libc::__error() };
}

fn address_of_ours() -> libc::sighandler_t {
    write_down as extern "C" fn(libc::c_int) as libc::sighandler_t
}

fn ours() -> Action {
    // SAFETY: the all-zero sigaction is valid: the default action with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = address_of_ours();
    // A thread of a host in another language may have a stack too small for a handler, and another one for handlers.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    Action(action)
}

/// Sets an action, or none, and tells the one before.
fn exchange(signal: Signal, new: Option<&Action>) -> io::Result<Action> {
    let new = new.map_or(std::ptr::null(), |action| &raw const action.0);
    // SAFETY: `new` is null or points to a valid action whose handler is async-signal-safe or was there before; the one
    // before is written into a valid place.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal.0, new, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Action(before))
    }
}

fn put_back(signal: Signal, mut before: Action) {
    let present = exchange(signal, None);
    if present.is_ok_and(|present| present.0.sa_sigaction == address_of_ours()) {
        if before.0.sa_sigaction == address_of_ours() {
            // Inherited by a forked copy: to have it is the same as to have none.
            // SAFETY: the all-zero sigaction is the default action.
            before = Action(unsafe { std::mem::zeroed() });
        }
        let _ = exchange(signal, Some(&before));
    }
}

/// Ends the process at once: no destructors, no exit hooks, nothing is flushed. The keeper ends the workers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: no precondition, and it does not return.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_cannot_be_noted_cannot_be_named() {
        for raw in [-1, 0, 65, libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGABRT] {
            assert_eq!(Signal::new(raw), None, "{raw}");
        }
        assert_eq!(Signal::new(libc::SIGTERM), Some(Signal::TERM));
    }

    #[test]
    fn a_note_reads_back_as_it_was_written() {
        for (taking, signal) in [(0, 0), (1, 15), (u32::MAX, 64)] {
            assert_eq!(read_note(write_note(taking, signal)), (taking, signal));
        }
    }
}
