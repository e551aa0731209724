//! Recording signals: a handler writes down each signal that comes, and a thread reads these notes.
//!
//! Owns the handler, the pipe that it writes to, and the actions that were set before. It must not know what a signal
//! means to the host. Nothing is set up before [`SignalNotes::take`] is called.
//!
//! The pipe is never closed, and every note carries the generation of the [`SignalNotes`] that it belongs to. A handler
//! may still run in another thread when the signals are given back. It must neither write to a descriptor that now
//! means something else, nor leave a note that the next owner takes for its own.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Pid;
use crate::run::startup;

/// A signal that can be recorded: one that makes a request and does not report a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Signal(i32);

impl Signal {
    /// The signal that `kill`, container engines and service managers send.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// The signal of Ctrl-C.
    pub const INT: Self = Self(libc::SIGINT);
    /// The signal for a terminal that is gone.
    pub const HUP: Self = Self(libc::SIGHUP);
    /// The signal of Ctrl-\.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// The first signal without a fixed meaning.
    pub const USR1: Self = Self(libc::SIGUSR1);
    /// The second signal without a fixed meaning.
    pub const USR2: Self = Self(libc::SIGUSR2);

    /// Creates a signal. Returns `None` for numbers that are not signals, for KILL and STOP, and for faults: after a
    /// handler returns from a fault, the fault occurs again.
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

    /// Returns the number.
    pub fn as_raw(self) -> i32 {
        self.0
    }

    /// Returns whether this process was started with the signal ignored, for example by `nohup`.
    pub fn was_ignored_at_start(self) -> bool {
        startup::ignored_signals() & (1 << (self.0 - 1)) != 0
    }
}

/// The reason why signals cannot be recorded. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotesError {
    /// Another [`SignalNotes`] is alive.
    #[error("another SignalNotes already holds the signals of this process: give it back first")]
    Taken,
    /// The pipe for the notes cannot be created.
    #[error("cannot create the pipe for signal notes")]
    Pipe(#[source] io::Error),
    /// The system refuses a handler.
    #[error("cannot install a handler for signal {}", .signal.as_raw())]
    Handler {
        /// The signal.
        signal: Signal,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

/// The handler's target: the descriptor plus one (lower half) and the generation (upper half); 0 means none.
static NOTE_TARGET: AtomicU64 = AtomicU64::new(0);
/// The process that records its signals. A forked copy inherits the handlers, but is another process.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The current owner of the signals.
static REGISTRY: Mutex<NoteRegistry> = Mutex::new(NoteRegistry { pipe: None, generations: 0, taken: false });

struct NoteRegistry {
    pipe: Option<Arc<NotePipe>>,
    generations: u32,
    taken: bool,
}

#[derive(Debug)]
struct NotePipe {
    owner: Pid,
    reader: PipeReader,
    writer: PipeWriter,
}

/// The signals that are recorded, from [`SignalNotes::take`] until [`SignalNotes::give_back`] or until this value is
/// dropped.
#[derive(Debug)]
pub struct SignalNotes {
    pipe: Arc<NotePipe>,
    generation: u32,
    given_back: AtomicBool,
    held: Mutex<HeldSignals>,
}

#[derive(Debug, Default)]
struct HeldSignals {
    /// The previous action of each recorded signal.
    before: Vec<(Signal, SavedAction)>,
    ignored: Vec<Signal>,
}

#[derive(Clone, Copy)]
struct SavedAction(libc::sigaction);

impl std::fmt::Debug for SavedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SavedAction({:#x})", self.0.sa_sigaction)
    }
}

impl SignalNotes {
    /// Sets the handler for these signals. Calls that the handler interrupts continue (`SA_RESTART`).
    ///
    /// Earlier handlers do not run until the signals are given back. Signals that were ignored when the process was
    /// started stay ignored.
    pub fn take(signals: &[Signal]) -> Result<Self, NotesError> {
        let here = Pid::current();
        let notes = {
            let mut registry = registry();
            // A forked copy starts with no signals: those that the original process has taken do not belong to the
            // copy.
            let pipe = registry.pipe.as_ref().filter(|pipe| pipe.owner == here).cloned();
            if registry.taken && pipe.is_some() {
                return Err(NotesError::Taken);
            }
            let pipe = pipe.map_or_else(|| NotePipe::new(here), Ok).map_err(NotesError::Pipe)?;
            registry.generations = registry.generations.wrapping_add(1);
            registry.taken = true;
            registry.pipe = Some(Arc::clone(&pipe));
            let generation = registry.generations;
            let target = u64::from(generation) << 32 | (pipe.writer.as_raw_fd() as u64 + 1);
            NOTE_TARGET.store(target, Ordering::SeqCst);
            OWNER.store(here.as_raw(), Ordering::SeqCst);
            Self { pipe, generation, given_back: AtomicBool::new(false), held: Mutex::default() }
        };
        notes.add(signals)?;
        Ok(notes)
    }

    /// Records these signals, too. Signals that are already recorded, or were ignored at the start, do not change.
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

    /// Returns the signals that are recorded.
    pub fn noted(&self) -> Vec<Signal> {
        self.held().before.iter().map(|(signal, _)| *signal).collect()
    }

    /// Returns the requested signals that stay ignored, because the process was started with them ignored.
    pub fn ignored(&self) -> Vec<Signal> {
        self.held().ignored.clone()
    }

    /// Waits for the next signal, on a dedicated thread. Returns `None` once the signals are given back.
    pub fn next(&self) -> Option<Signal> {
        while !self.is_given_back() && Pid::current() == self.pipe.owner {
            let mut note = [0; NOTE];
            match (&self.pipe.reader).read_exact(&mut note) {
                Ok(()) => {
                    let (generation, signal) = read_note(note);
                    // A note of another generation comes from a late handler. Number 0 only wakes the reader.
                    if let Some(signal) = Signal::new(signal).filter(|_| generation == self.generation) {
                        return Some(signal);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Restores the earlier actions, except for signals whose handler was replaced meanwhile. This cannot be undone.
    pub fn give_back(&self) {
        let mut held = self.held();
        if self.given_back.swap(true, Ordering::SeqCst) || Pid::current() != self.pipe.owner {
            return;
        }
        for (signal, before) in held.before.drain(..) {
            put_back(signal, before);
        }
        NOTE_TARGET.store(0, Ordering::SeqCst);
        registry().taken = false;
        // This wakes the thread that waits for the next signal. A full pipe needs no note, because there is something
        // to read.
        let _ = rustix::io::write(&self.pipe.writer, &write_note(self.generation, 0));
    }

    fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::SeqCst)
    }

    fn held(&self) -> MutexGuard<'_, HeldSignals> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SignalNotes {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl NotePipe {
    fn new(owner: Pid) -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        // The handler must not block; the reader has to.
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(Self { owner, reader, writer }))
    }
}

fn registry() -> MutexGuard<'static, NoteRegistry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The length of a note. It is far below `PIPE_BUF`, so a note is written and read completely or not at all.
const NOTE: usize = 8;

const fn write_note(generation: u32, signal: i32) -> [u8; NOTE] {
    ((generation as u64) << 32 | signal as u64).to_ne_bytes()
}

const fn read_note(note: [u8; NOTE]) -> (u32, i32) {
    let note = u64::from_ne_bytes(note);
    ((note >> 32) as u32, note as u32 as i32)
}

/// The handler. It may interrupt any code, so it uses only atomics and async-signal-safe calls.
extern "C" fn write_down(signal: libc::c_int) {
    let errno = errno_place();
    // SAFETY: the pointer refers to this thread's errno, which lives as long as the thread does.
    let kept = unsafe { *errno };
    // SAFETY: no precondition.
    let here = unsafe { libc::getpid() };
    if here == OWNER.load(Ordering::SeqCst) {
        let target = NOTE_TARGET.load(Ordering::SeqCst);
        if target != 0 {
            let note = write_note((target >> 32) as u32, signal);
            let pipe = (target as u32 - 1) as i32;
            // SAFETY: the bytes are on this stack, and the pipe is never closed. A full pipe stays as it is: its reader
            // has enough to read.
            unsafe { libc::write(pipe, note.as_ptr().cast(), note.len()) };
        }
    } else {
        // This is a forked copy that recorded no signals. The default action takes effect once the handler returns and
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
    // SAFETY: no precondition; the call only returns the address of errno.
    #[cfg(target_os = "linux")]
    return unsafe { libc::__errno_location() };
    // SAFETY: the same call, under its name on the BSDs.
    #[cfg(not(target_os = "linux"))]
    return unsafe { libc::__error() };
}

fn address_of_ours() -> libc::sighandler_t {
    write_down as extern "C" fn(libc::c_int) as libc::sighandler_t
}

fn ours() -> SavedAction {
    // SAFETY: the all-zero sigaction is valid; it is the default action with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = address_of_ours();
    // A thread of a host in another language may have too small a stack, and an alternate one for handlers.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    SavedAction(action)
}

/// Sets an action if one is given. Returns the previous one.
fn exchange(signal: Signal, new: Option<&SavedAction>) -> io::Result<SavedAction> {
    let new = new.map_or(std::ptr::null(), |action| &raw const action.0);
    // SAFETY: `new` is null or points to a valid action whose handler is async-signal-safe or was set before; the
    // previous action is written to a valid place.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal.0, new, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(SavedAction(before))
    }
}

fn put_back(signal: Signal, mut before: SavedAction) {
    let present = exchange(signal, None);
    if present.is_ok_and(|present| present.0.sa_sigaction == address_of_ours()) {
        if before.0.sa_sigaction == address_of_ours() {
            // A forked copy inherited the handler. That is the same as having none.
            // SAFETY: the all-zero sigaction is the default action.
            before = SavedAction(unsafe { std::mem::zeroed() });
        }
        let _ = exchange(signal, Some(&before));
    }
}

/// Ends the process immediately: no destructors, no exit hooks, no flushing. The keeper ends the workers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: no precondition, and it does not return.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_cannot_be_handled_has_no_value() {
        for raw in [-1, 0, 65, libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGABRT] {
            assert_eq!(Signal::new(raw), None, "{raw}");
        }
        assert_eq!(Signal::new(libc::SIGTERM), Some(Signal::TERM));
    }

    #[test]
    fn a_signal_note_reads_back_as_written() {
        for (generation, signal) in [(0, 0), (1, 15), (u32::MAX, 64)] {
            assert_eq!(read_note(write_note(generation, signal)), (generation, signal));
        }
    }
}
