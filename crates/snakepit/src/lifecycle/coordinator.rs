//! What signals mean: the first one drains, the second stops now, the third ends the process at once.
//!
//! Owns the count and the callbacks; custody owns the handler. It knows no engine: who wants to stop something either
//! registers a callback or awaits a [`Stage`].
//!
//! Three threads, made when it is installed, so that a signal needs nothing that could be refused by then. One reads
//! the notes of the handler and counts; it never runs anybody else's code, not even a waker, so nothing can keep it from
//! the third signal. One tells of the first signal and one of the second, so a callback that hangs keeps back only those
//! that were registered after it for the same signal.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::orchestrator::undisturbed;
use crate::custody::{NotesError, Pid, Signal, SignalNotes, exit_now};

/// How far the end of the process has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// Nobody has asked for an end.
    #[default]
    Running,
    /// What is under way is finished, and nothing new is begun.
    Draining {
        /// The first signal; `None` if [`ShutdownCoordinator::trigger`] was.
        signal: Option<i32>,
    },
    /// What is under way is cut short.
    StopNow {
        /// The second signal.
        signal: i32,
    },
}

impl Stage {
    /// Whether it is as far as the other, or farther; by which signal does not matter.
    pub fn is_at_least(self, other: Self) -> bool {
        self.rank() >= other.rank()
    }

    fn rank(self) -> u8 {
        match self {
            Self::Running => 0,
            Self::Draining { .. } => 1,
            Self::StopNow { .. } => 2,
        }
    }
}

/// Why signals cannot be coordinated. They are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// They cannot be noted.
    #[error(transparent)]
    Notes(#[from] NotesError),
    /// A thread is missing.
    #[error("cannot start a thread for the signals of this process")]
    Thread(#[source] io::Error),
}

/// A callback, to take it back by [`ShutdownCoordinator::unregister`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallbackId(u64);

/// The signals of this process, counted. There is one at most.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use snakepit::lifecycle::ShutdownCoordinator;
///
/// let coordinator = ShutdownCoordinator::install()?;
/// coordinator.register("the mail loop", || { /* take no more mail */ });
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ShutdownCoordinator {
    owner: Pid,
    notes: Arc<SignalNotes>,
    shared: Arc<Shared>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

static INSTALLED: Mutex<Option<Arc<ShutdownCoordinator>>> = Mutex::new(None);

/// What the threads share.
#[derive(Debug)]
struct Shared {
    /// Held for a few instructions at a time, never while anybody else's code runs.
    state: Mutex<State>,
    changed: Condvar,
    stages: watch::Sender<Stage>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    over: bool,
    first: VecDeque<Callback>,
    now: VecDeque<Callback>,
}

/// Which signal a callback waits for.
#[derive(Clone, Copy, Debug)]
enum Occasion {
    First,
    Now,
}

struct Callback {
    id: CallbackId,
    name: String,
    call: Box<dyn FnOnce() + Send>,
}

impl ShutdownCoordinator {
    /// Takes TERM and INT over. Later calls give back the same coordinator.
    ///
    /// Whatever handled them before does not hear of them until [`ShutdownCoordinator::reset`]. A signal that was ignored
    /// when the process was started, as by `nohup`, stays ignored.
    pub fn install() -> Result<Arc<Self>, SignalError> {
        Self::install_for(&[Signal::TERM, Signal::INT])
    }

    /// As [`ShutdownCoordinator::install`], for these signals; one that is installed already takes them as well.
    pub fn install_for(signals: &[Signal]) -> Result<Arc<Self>, SignalError> {
        let mut installed = installed();
        if let Some(coordinator) = &*installed {
            if coordinator.is_own() {
                coordinator.notes.add(signals)?;
                return Ok(Arc::clone(coordinator));
            }
            // That of the process whose forked copy this is. Its locks may be held for ever: it is not even dropped.
            std::mem::forget(installed.take());
        }
        let coordinator = Arc::new(Self::start(signals)?);
        Ok(Arc::clone(installed.insert(coordinator)))
    }

    /// The coordinator of this process, if it is installed.
    pub fn get() -> Option<Arc<Self>> {
        installed().clone().filter(|coordinator| coordinator.is_own())
    }

    fn start(signals: &[Signal]) -> Result<Self, SignalError> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            stages: watch::Sender::new(Stage::Running),
        });
        let notes = Arc::new(SignalNotes::take(signals)?);
        let coordinator = Self { owner: Pid::current(), notes, shared, reader: Mutex::new(None) };
        // If one cannot be had, those that are there end with the coordinator.
        let begun = coordinator.start_threads();
        if let Err(error) = begun {
            coordinator.end();
            return Err(SignalError::Thread(error));
        }
        Ok(coordinator)
    }

    fn start_threads(&self) -> io::Result<()> {
        for (name, occasion) in [("snakepit-drain", Occasion::First), ("snakepit-stop", Occasion::Now)] {
            let shared = Arc::clone(&self.shared);
            thread(name, move || shared.tell(occasion))?;
        }
        let (shared, notes) = (Arc::clone(&self.shared), Arc::clone(&self.notes));
        let reader = thread("snakepit-signals", move || {
            while let Some(signal) = notes.next() {
                shared.count(signal);
            }
        })?;
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader);
        Ok(())
    }

    /// Calls this at the first signal, on a thread of the coordinator, after those that were registered before it; at
    /// once, on the caller's thread, if that signal has come already. A panic of it is logged and stops no other.
    pub fn register(&self, name: impl Into<String>, callback: impl FnOnce() + Send + 'static) -> CallbackId {
        self.shared.register(Occasion::First, name.into(), Box::new(callback))
    }

    /// The same for the second signal: what is under way is to be cut short. It is called on another thread than those
    /// of the first signal, so it comes even while one of them, and the runtime, hangs.
    pub fn register_now(
        &self,
        name: impl Into<String>,
        callback: impl FnOnce() + Send + 'static,
    ) -> CallbackId {
        self.shared.register(Occasion::Now, name.into(), Box::new(callback))
    }

    /// Takes a callback back. False if it has been called, or is being called.
    pub fn unregister(&self, id: CallbackId) -> bool {
        self.shared.unregister(id)
    }

    /// Does what a first signal does; nothing if there was one. The callbacks are called soon, on their own thread.
    pub fn trigger(&self) {
        self.shared.trigger();
    }

    /// Whether there was a first signal, or somebody has triggered it.
    pub fn triggered(&self) -> bool {
        self.stage() != Stage::Running
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.shared.state().stage
    }

    /// Until it has come as far as this stage; gives back the one that it is at, with its signal. The signal in the
    /// argument does not matter. After a [`ShutdownCoordinator::reset`] it waits for ever.
    pub fn reached(&self, stage: Stage) -> impl Future<Output = Stage> + Send + use<> {
        let mut stages = self.stages();
        async move {
            let reached = stages.wait_for(|now| now.is_at_least(stage)).await.ok().map(|now| *now);
            match reached {
                Some(stage) => stage,
                None => std::future::pending().await,
            }
        }
    }

    /// The stages as they come.
    pub fn stages(&self) -> watch::Receiver<Stage> {
        self.shared.stages.subscribe()
    }

    /// The signals that were asked for and stay ignored, because they were when the process was started.
    pub fn ignored(&self) -> Vec<Signal> {
        self.notes.ignored()
    }

    /// Puts back what handled the signals before, and forgets the callbacks; one that is being called goes on. The next
    /// [`ShutdownCoordinator::install`] makes another one. For tests, and for hosts that go on without the library.
    pub fn reset(&self) {
        let mut installed = installed();
        if !self.is_own() {
            return;
        }
        self.end();
        if installed.as_ref().is_some_and(|other| std::ptr::eq(&raw const **other, self)) {
            *installed = None;
        }
    }

    fn end(&self) {
        self.notes.give_back();
        self.shared.end();
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            // It runs only code of ours, which does not panic, and was just told to end.
            let _ = reader.join();
        }
    }

    fn is_own(&self) -> bool {
        self.owner == Pid::current()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A signal came.
    fn count(&self, signal: Signal) {
        let signal = signal.as_raw();
        let mut state = self.state();
        if state.over {
            return;
        }
        state.stage = match state.stage {
            Stage::Running => Stage::Draining { signal: Some(signal) },
            Stage::Draining { .. } => Stage::StopNow { signal },
            Stage::StopNow { .. } => exit_now(128 + signal),
        };
        drop(state);
        self.changed.notify_all();
    }

    fn trigger(&self) {
        let mut state = self.state();
        if state.over || state.stage != Stage::Running {
            return;
        }
        state.stage = Stage::Draining { signal: None };
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for its occasion, tells whoever awaits the stage, and calls the callbacks; the life of a thread.
    fn tell(&self, occasion: Occasion) {
        let mut state = self.state();
        while !state.over && !occasion.has_come(state.stage) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over {
            return;
        }
        let stage = state.stage;
        drop(state);
        // The other thread may be ahead: a stage is never taken back.
        self.stages.send_if_modified(|told| {
            let farther = !told.is_at_least(stage);
            if farther {
                *told = stage;
            }
            farther
        });
        // One at a time, so that what is unregistered before its turn is not called.
        while let Some(callback) = self.next_of(occasion) {
            callback.call();
        }
    }

    fn next_of(&self, occasion: Occasion) -> Option<Callback> {
        self.state().of(occasion).pop_front()
    }

    fn register(&self, occasion: Occasion, name: String, call: Box<dyn FnOnce() + Send>) -> CallbackId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = CallbackId(NEXT.fetch_add(1, Ordering::Relaxed));
        let callback = Callback { id, name, call };
        let mut state = self.state();
        if state.over {
            // Dropped, but not while the lock is held.
            drop(state);
        } else if occasion.has_come(state.stage) {
            drop(state);
            callback.call();
        } else {
            state.of(occasion).push_back(callback);
        }
        id
    }

    fn unregister(&self, id: CallbackId) -> bool {
        let mut state = self.state();
        let found = [Occasion::First, Occasion::Now].into_iter().find_map(|occasion| {
            let callbacks = state.of(occasion);
            let place = callbacks.iter().position(|callback| callback.id == id)?;
            callbacks.remove(place)
        });
        // What the callback holds is dropped after the lock.
        drop(state);
        found.is_some()
    }

    fn end(&self) {
        let mut state = self.state();
        state.over = true;
        let forgotten = (std::mem::take(&mut state.first), std::mem::take(&mut state.now));
        drop(state);
        self.changed.notify_all();
        drop(forgotten);
    }
}

impl State {
    fn of(&mut self, occasion: Occasion) -> &mut VecDeque<Callback> {
        match occasion {
            Occasion::First => &mut self.first,
            Occasion::Now => &mut self.now,
        }
    }
}

impl Occasion {
    fn has_come(self, stage: Stage) -> bool {
        match (self, stage) {
            (Self::First, Stage::Draining { .. }) | (_, Stage::StopNow { .. }) => true,
            (_, Stage::Running) | (Self::Now, Stage::Draining { .. }) => false,
        }
    }
}

impl Callback {
    fn call(self) {
        if catch_unwind(AssertUnwindSafe(self.call)).is_err() {
            undisturbed(|| tracing::warn!(callback = self.name, "a shutdown callback panicked"));
        }
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback({})", self.name)
    }
}

fn installed() -> MutexGuard<'static, Option<Arc<ShutdownCoordinator>>> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}
