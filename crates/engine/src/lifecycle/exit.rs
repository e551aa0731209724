//! The two ways out of a process: in order, by [`exit`], and at once, by [`exit_now`].
//!
//! Owns the exit hooks and their time limit. Both ways leave the workers to custody's keeper, which ends them when the
//! host is gone. If workers must finish something, stop the engine first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::custody::exit_now;
use crate::error_text::ignoring_panics;

/// The default limit of an exit: for the hooks, C's `atexit` functions and the flush of stdout together.
pub const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// The longest limit that takes effect: a year. A longer one could overflow the clock.
const LONGEST_LIMIT: Duration = Duration::from_hours(24 * 365);

/// The id of an exit hook, for [`forget`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HookId(u64);

struct Hook {
    id: HookId,
    name: String,
    run: Box<dyn FnOnce() + Send>,
}

struct ExitPlan {
    hooks: Vec<Hook>,
    next: u64,
    limit: Duration,
    step: ExitStep,
}

/// The progress of the exit.
#[derive(Clone, Copy)]
enum ExitStep {
    /// [`exit`] was not called.
    Running,
    /// The hooks run on this thread. The process ends with this status.
    Hooks(ThreadId, i32),
    /// The hooks are done. The system or the watchdog does the rest.
    Leaving,
}

static STATE: Mutex<ExitPlan> =
    Mutex::new(ExitPlan { hooks: Vec::new(), next: 1, limit: EXIT_LIMIT, step: ExitStep::Running });

fn state() -> MutexGuard<'static, ExitPlan> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a hook that runs when the process leaves through [`exit`], before the hooks that were registered earlier.
/// Other ways out (the end of `main`, `std::process::exit`, a signal, a panic that aborts) run no hooks.
pub fn on_exit(name: impl Into<String>, hook: impl FnOnce() + Send + 'static) -> HookId {
    let (name, run) = (name.into(), Box::new(hook));
    let mut state = state();
    let id = HookId(state.next);
    state.next += 1;
    state.hooks.push(Hook { id, name, run });
    id
}

/// Removes a hook. Returns `false` if it has run, or is running.
pub fn forget(id: HookId) -> bool {
    let mut state = state();
    let index = state.hooks.iter().position(|hook| hook.id == id);
    let hook = index.map(|index| state.hooks.remove(index));
    // Release the lock before the hook drops what it holds.
    drop(state);
    hook.is_some()
}

/// Sets the limit of an [`exit`]. An exit that has begun keeps its limit.
pub fn set_exit_limit(limit: Duration) {
    state().limit = limit;
}

/// Ends the process in order: runs the hooks, the last one first, and then `std::process::exit`.
///
/// If that exceeds the limit (5 s by default), the process ends at once with the same status. So a hook that hangs, a
/// function of C's `atexit`, or a stdout pipe without a reader cannot hold it up. A panic of a hook is logged and stops
/// no other hook. If several threads call `exit`, the first status counts, and the other threads wait for the end.
pub fn exit(status: i32) -> ! {
    let here = std::thread::current().id();
    let mut state = state();
    let status = match state.step {
        ExitStep::Running => {
            state.step = ExitStep::Hooks(here, status);
            let limit = state.limit;
            drop(state);
            set_watchdog(limit, status);
            status
        }
        // A hook called this. It cannot return to that hook, so the other hooks run from here.
        ExitStep::Hooks(thread, first) if thread == here => {
            drop(state);
            first
        }
        ExitStep::Hooks(..) | ExitStep::Leaving => {
            drop(state);
            wait_for_the_end()
        }
    };
    run_hooks();
    std::process::exit(status)
}

/// Ends the process with this status when the limit has passed.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that waits outside of any runtime, whose clock may be paused or gone"
)]
fn set_watchdog(limit: Duration, status: i32) {
    let deadline = Instant::now() + limit.min(LONGEST_LIMIT);
    let watchdog = std::thread::Builder::new().name("snakepit-exit".to_owned()).spawn(move || {
        while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            std::thread::park_timeout(left);
        }
        exit_now(status)
    });
    if watchdog.is_err() {
        // An exit that may hang is worse than one without hooks.
        exit_now(status);
    }
}

/// Runs hooks until none is left, including hooks that are registered meanwhile. The watchdog limits them all.
fn run_hooks() {
    loop {
        let mut state = state();
        let Some(Hook { name, run, .. }) = state.hooks.pop() else {
            state.step = ExitStep::Leaving;
            return;
        };
        drop(state);
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            ignoring_panics(|| tracing::warn!(hook = name, "an exit hook panicked"));
        }
    }
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}
