//! The meaning of signals: the first one drains, the second stops now, the third ends the process at once.
//!
//! Owns the count and the callbacks; custody owns the handler. Knows no engine: to stop something on a signal, register
//! a callback or await a [`Stage`].
//!
//! Installation starts three threads in advance, since the system could refuse a thread at the time of a signal. One
//! thread reads the notes of the handler and counts. It never runs foreign code, not even a waker, so nothing keeps it
//! from the third signal. The other two call the callbacks of the first and of the second signal. So a callback that
//! hangs delays only those that were registered after it for the same signal.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::custody::{NotesError, Pid, Signal, SignalNotes, exit_now};
use crate::error_text::ignoring_panics;

/// The progress of the end of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// No signal has come.
    #[default]
    Running,
    /// Work under way may finish, and nothing new begins.
    Draining {
        /// The first signal; `None` if [`ShutdownCoordinator::trigger`] took its place.
        signal: Option<i32>,
    },
    /// Work under way is cut short.
    StopNow {
        /// The second signal.
        signal: i32,
    },
}

impl Stage {
    /// Reports whether this stage is the other one or a later one, whatever the signals.
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

/// The reason why the coordinator was not installed. The signal handlers are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// The handler was not installed.
    #[error(transparent)]
    Notes(#[from] NotesError),
    /// A thread did not start.
    #[error(
        "cannot start a thread for the signals of this process: is its limit of threads (ulimit -u) reached?"
    )]
    Thread(#[source] io::Error),
}

/// The id of a callback, for [`ShutdownCoordinator::unregister`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallbackId(u64);

/// The coordinator of this process, which counts its signals. There is at most one.
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
    counter: Arc<SignalCounter>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

static INSTALLED: Mutex<Option<Arc<ShutdownCoordinator>>> = Mutex::new(None);

/// What the threads share.
#[derive(Debug)]
struct SignalCounter {
    /// Held for a few instructions at a time, never while foreign code runs.
    state: Mutex<SignalState>,
    changed: Condvar,
    stages: watch::Sender<Stage>,
}

#[derive(Debug, Default)]
struct SignalState {
    stage: Stage,
    over: bool,
    drain: VecDeque<Callback>,
    stop_now: VecDeque<Callback>,
}

/// The stage that a callback waits for: [`Stage::Draining`] or [`Stage::StopNow`].
#[derive(Clone, Copy, Debug)]
enum CallbackStage {
    Drain,
    StopNow,
}

struct Callback {
    id: CallbackId,
    name: String,
    call: Box<dyn FnOnce() + Send>,
}

impl ShutdownCoordinator {
    /// Takes over TERM and INT. Later calls return the same coordinator.
    ///
    /// The previous handlers get no signals until [`ShutdownCoordinator::reset`]. A signal that was ignored when the process
    /// started, as by `nohup`, stays ignored.
    pub fn install() -> Result<Arc<Self>, CoordinatorError> {
        Self::install_for(&[Signal::TERM, Signal::INT])
    }

    /// Takes over signals like [`ShutdownCoordinator::install`], but these. An installed coordinator takes them in
    /// addition.
    pub fn install_for(signals: &[Signal]) -> Result<Arc<Self>, CoordinatorError> {
        let mut installed = installed();
        if let Some(coordinator) = &*installed {
            if coordinator.is_own() {
                coordinator.notes.add(signals)?;
                return Ok(Arc::clone(coordinator));
            }
            // It belongs to the process that this one was forked from. Its locks may be held forever, so it is not
            // dropped.
            std::mem::forget(installed.take());
        }
        let coordinator = Arc::new(Self::start(signals)?);
        Ok(Arc::clone(installed.insert(coordinator)))
    }

    /// Returns the coordinator of this process, if one is installed.
    pub fn get() -> Option<Arc<Self>> {
        installed().clone().filter(|coordinator| coordinator.is_own())
    }

    fn start(signals: &[Signal]) -> Result<Self, CoordinatorError> {
        let counter = Arc::new(SignalCounter {
            state: Mutex::default(),
            changed: Condvar::new(),
            stages: watch::Sender::new(Stage::Running),
        });
        let notes = Arc::new(SignalNotes::take(signals)?);
        let coordinator = Self { owner: Pid::current(), notes, counter, reader: Mutex::new(None) };
        if let Err(error) = coordinator.start_threads() {
            // Ends the threads that did start.
            coordinator.end();
            return Err(CoordinatorError::Thread(error));
        }
        Ok(coordinator)
    }

    fn start_threads(&self) -> io::Result<()> {
        for (name, when) in
            [("snakepit-drain", CallbackStage::Drain), ("snakepit-stop", CallbackStage::StopNow)]
        {
            let counter = Arc::clone(&self.counter);
            thread(name, move || counter.run_callbacks(when))?;
        }
        let (counter, notes) = (Arc::clone(&self.counter), Arc::clone(&self.notes));
        let reader = thread("snakepit-signals", move || {
            while let Some(signal) = notes.next() {
                counter.count(signal);
            }
        })?;
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader);
        Ok(())
    }

    /// Registers a callback for the first signal. It runs on a thread of the coordinator, after the callbacks that were
    /// registered before it. If the signal has come already, the callback runs at once, on the caller's thread. A panic
    /// is logged and stops no other callback.
    pub fn register(&self, name: impl Into<String>, callback: impl FnOnce() + Send + 'static) -> CallbackId {
        self.counter.register(CallbackStage::Drain, name.into(), Box::new(callback))
    }

    /// Registers a callback for the second signal, which cuts work short. It runs on a thread of its own, even while a
    /// callback of the first signal or the runtime hangs.
    pub fn register_now(
        &self,
        name: impl Into<String>,
        callback: impl FnOnce() + Send + 'static,
    ) -> CallbackId {
        self.counter.register(CallbackStage::StopNow, name.into(), Box::new(callback))
    }

    /// Removes a callback. Returns `false` if it has run, or is running.
    pub fn unregister(&self, id: CallbackId) -> bool {
        self.counter.unregister(id)
    }

    /// Has the effect of a first signal, or none after one. The callbacks run soon, on their own thread.
    pub fn trigger(&self) {
        self.counter.trigger();
    }

    /// Reports whether a first signal has come or [`ShutdownCoordinator::trigger`] was called.
    pub fn triggered(&self) -> bool {
        self.stage() != Stage::Running
    }

    /// Returns the current stage.
    pub fn stage(&self) -> Stage {
        self.counter.state().stage
    }

    /// Waits for this stage or a later one, and returns the current stage with its signal. The signal in the argument
    /// does not matter. After a [`ShutdownCoordinator::reset`], this waits forever.
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

    /// Returns a receiver of the stages.
    pub fn stages(&self) -> watch::Receiver<Stage> {
        self.counter.stages.subscribe()
    }

    /// Returns the signals that stay ignored, because they were ignored when the process started.
    pub fn ignored(&self) -> Vec<Signal> {
        self.notes.ignored()
    }

    /// Restores the previous handlers and discards the callbacks; a callback that is running goes on. The next
    /// [`ShutdownCoordinator::install`] creates a new coordinator. For tests, and for hosts that go on without the
    /// library.
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
        self.counter.end();
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            // The thread runs only our code, which does not panic, and was just told to end.
            let _ = reader.join();
        }
    }

    fn is_own(&self) -> bool {
        self.owner == Pid::current()
    }
}

impl SignalCounter {
    fn state(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a signal.
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

    /// Waits for a stage, publishes it, and calls its callbacks. A thread of the coordinator runs this.
    fn run_callbacks(&self, when: CallbackStage) {
        let mut state = self.state();
        while !state.over && !when.has_come(state.stage) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over {
            return;
        }
        let stage = state.stage;
        drop(state);
        // The other thread may be ahead, and stages only go forward.
        self.stages.send_if_modified(|published| {
            let later = !published.is_at_least(stage);
            if later {
                *published = stage;
            }
            later
        });
        // One at a time: a callback that is unregistered before its turn must not run.
        while let Some(callback) = self.next_callback(when) {
            callback.call();
        }
    }

    fn next_callback(&self, when: CallbackStage) -> Option<Callback> {
        self.state().callbacks(when).pop_front()
    }

    fn register(&self, when: CallbackStage, name: String, call: Box<dyn FnOnce() + Send>) -> CallbackId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = CallbackId(NEXT.fetch_add(1, Ordering::Relaxed));
        let callback = Callback { id, name, call };
        let mut state = self.state();
        if state.over {
            // Release the lock before the callback is dropped.
            drop(state);
        } else if when.has_come(state.stage) {
            drop(state);
            callback.call();
        } else {
            state.callbacks(when).push_back(callback);
        }
        id
    }

    fn unregister(&self, id: CallbackId) -> bool {
        let mut state = self.state();
        let found = [CallbackStage::Drain, CallbackStage::StopNow].into_iter().find_map(|when| {
            let callbacks = state.callbacks(when);
            let index = callbacks.iter().position(|callback| callback.id == id)?;
            callbacks.remove(index)
        });
        // Release the lock before the callback drops what it holds.
        drop(state);
        found.is_some()
    }

    fn end(&self) {
        let mut state = self.state();
        state.over = true;
        let forgotten = (std::mem::take(&mut state.drain), std::mem::take(&mut state.stop_now));
        drop(state);
        self.changed.notify_all();
        drop(forgotten);
    }
}

impl SignalState {
    fn callbacks(&mut self, when: CallbackStage) -> &mut VecDeque<Callback> {
        match when {
            CallbackStage::Drain => &mut self.drain,
            CallbackStage::StopNow => &mut self.stop_now,
        }
    }
}

impl CallbackStage {
    fn has_come(self, stage: Stage) -> bool {
        match (self, stage) {
            (Self::Drain, Stage::Draining { .. }) | (_, Stage::StopNow { .. }) => true,
            (_, Stage::Running) | (Self::StopNow, Stage::Draining { .. }) => false,
        }
    }
}

impl Callback {
    fn call(self) {
        if catch_unwind(AssertUnwindSafe(self.call)).is_err() {
            ignoring_panics(|| tracing::warn!(callback = self.name, "a shutdown callback panicked"));
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
