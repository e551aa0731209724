//! Engines for hosts without a runtime: the thread that makes a call drives the engine while it waits.
//!
//! ```text
//! calling threads   ──── call ────   ── call ──            ─── call ───
//! engine's thread   drives        └──────────────┘ drives ┘            └── …
//!                        it leaves when a call comes      it is back when no call has come for a while
//! ```
//!
//! A call therefore needs no other thread: the one that waits for the answer reads it from the socket. Between calls, a
//! thread of the engine runs the background work, such as the replacement of dead workers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

use crate::builder::{Builder, EngineError};
use crate::handle::Snakepit;
use crate::shutdown_report::ShutdownReport;
use snakepit_core::CallError;

/// How long no call must have come before the engine's thread drives again. Handing over to it and back costs more than
/// a short call.
const QUIET: Duration = Duration::from_millis(1);

/// An engine as code without `async` uses it. Clones are cheap; dropping the last handle ends the workers.
///
/// ```no_run
/// use snakepit::{Snakepit, args, python};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let pit = Snakepit::builder().pool(python("worker.py").workers(4)).start_blocking()?;
///     let sum: i64 = pit.call("add", args! { a: 1, b: 2 })?;
///     pit.stop();
///     Ok(())
/// }
/// ```
///
/// # Panics
///
/// All methods that wait panic inside a task of a tokio runtime, because they would block the thread that the task
/// needs. There, await the methods of [`Snakepit`].
#[derive(Clone, Debug)]
pub struct Blocking {
    // Dropped before the runtime, which the end of an engine may need.
    pit: Snakepit,
    driver: Driver,
}

/// What makes progress while a thread waits.
#[derive(Clone, Debug)]
enum Driver {
    /// A runtime of the host.
    Host(Handle),
    Own(Arc<OwnRuntime>),
}

impl Blocking {
    pub(crate) fn start(builder: Builder) -> Result<Self, EngineError> {
        let runtime = OwnRuntime::start().map_err(EngineError::Runtime)?;
        let pit = runtime.block_on(builder.start())?;
        Ok(Self { pit, driver: Driver::Own(Arc::new(runtime)) })
    }

    pub(crate) fn of_host(pit: Snakepit, runtime: Handle) -> Self {
        Self { pit, driver: Driver::Host(runtime) }
    }

    /// Calls a command and waits for the value. For a call with options, see [`Blocking::wait`].
    ///
    /// ```no_run
    /// use snakepit::args;
    ///
    /// # fn example(pit: snakepit::lifecycle::Blocking) -> Result<(), snakepit::CallError> {
    /// let sum: i64 = pit.call("add", args! { a: 1, b: 2 })?;
    /// # Ok(()) }
    /// ```
    pub fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> Result<T, CallError> {
        self.wait(self.pit.call(command, args))
    }

    /// Waits for anything that the engine offers: a call with options, the next item of a stream, a pool's status.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # fn example(pit: snakepit::lifecycle::Blocking) -> Result<(), snakepit::CallError> {
    /// let text: String = pit.wait(pit.engine().call("read", ("scan.png",)).timeout(Duration::from_secs(5)))?;
    /// # Ok(()) }
    /// ```
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        match &self.driver {
            Driver::Host(runtime) => runtime.block_on(future.into_future()),
            Driver::Own(runtime) => runtime.block_on(future.into_future()),
        }
    }

    /// Returns the engine, whose methods describe what [`Blocking::wait`] waits for.
    ///
    /// ```no_run
    /// # fn example(pit: snakepit::lifecycle::Blocking) {
    /// let status = pit.wait(pit.engine().pools()[0].status());
    /// println!("{} workers", status.workers.len());
    /// # }
    /// ```
    pub fn engine(&self) -> &Snakepit {
        &self.pit
    }

    /// Stops the engine like [`Snakepit::stop`], and waits until it has ended.
    pub fn stop(&self) -> ShutdownReport {
        self.wait(self.pit.stop())
    }
}

/// A runtime that is driven by the threads that wait, and by a thread of its own while nobody does.
#[derive(Debug)]
struct OwnRuntime {
    /// Set until this is dropped.
    shared: Option<Arc<Shared>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    turn: Mutex<Turn>,
    /// Notified when the engine's thread must end, or when a long wait is over.
    wake: Condvar,
    /// Notified when the engine's thread must let others drive.
    leave: Notify,
}

/// Who drives the runtime.
#[derive(Debug, Default)]
struct Turn {
    /// The number of threads that wait for something.
    waiting: usize,
    /// How often a thread has begun to wait.
    begun: u64,
    /// Whether the engine's thread drives.
    is_own: bool,
    /// Whether the engine's thread sleeps until the threads that wait have their answers.
    is_asleep: bool,
    is_over: bool,
}

impl OwnRuntime {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (turn, wake, leave) = (Mutex::default(), Condvar::new(), Notify::new());
        let shared = Arc::new(Shared { runtime, turn, wake, leave });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("snakepit".into()).spawn(move || own.drive())?;
        Ok(Self { shared: Some(shared), thread: Some(thread) })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let shared = self.shared.as_ref().expect("set until this is dropped");
        let _waiting = WaitingThread::begin(shared);
        shared.runtime.block_on(future)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        shared.turn().is_over = true;
        shared.wake.notify_one();
        shared.leave.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(shared) = Arc::into_inner(shared) {
            shared.runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives the runtime whenever no thread waits, until the engine is dropped.
    fn drive(&self) {
        let mut seen = 0;
        let mut turn = self.turn();
        while !turn.is_over {
            if turn.waiting == 0 && turn.begun == seen {
                turn.is_own = true;
                drop(turn);
                self.runtime.block_on(self.leave.notified());
                turn = self.turn();
                turn.is_own = false;
            } else if turn.begun == seen {
                // A thread has waited for long, so the end of its wait may cost a wake-up.
                turn.is_asleep = true;
                turn = self.wake.wait(turn).unwrap_or_else(PoisonError::into_inner);
                turn.is_asleep = false;
                seen = turn.begun.wrapping_sub(1);
            } else {
                // After a short call, this thread is not woken: that would cost more than the call.
                seen = turn.begun;
                turn = self.wake.wait_timeout(turn, QUIET).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// A thread that waits, and drives the runtime meanwhile.
struct WaitingThread<'a>(&'a Shared);

impl<'a> WaitingThread<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let mut turn = shared.turn();
        turn.waiting += 1;
        turn.begun += 1;
        if turn.is_own {
            shared.leave.notify_one();
        }
        Self(shared)
    }
}

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        let mut turn = self.0.turn();
        turn.waiting -= 1;
        if turn.waiting == 0 && turn.is_asleep {
            self.0.wake.notify_one();
        }
    }
}
