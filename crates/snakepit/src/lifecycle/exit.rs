//! The two ways out of a process: in order, by [`exit`], and at once, by [`exit_now`].
//!
//! Owns the exit hooks and the time that they have. Both ways leave the workers to custody's keeper, which ends them
//! whenever a host is gone; who wants them to finish something first stops the engine before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::orchestrator::undisturbed;
use crate::custody::exit_now;

/// How long an exit may take by default: the hooks, C's `atexit` and the flush of stdout together.
pub const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// No clock reaches beyond this, and nobody waits so long.
const LONGEST_LIMIT: Duration = Duration::from_hours(24 * 365);

/// An exit hook, to take it back by [`forget`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HookId(u64);

struct Hook {
    id: HookId,
    name: String,
    run: Box<dyn FnOnce() + Send>,
}

struct Door {
    hooks: Vec<Hook>,
    next: u64,
    limit: Duration,
    step: Step,
}

/// How far the exit has come.
#[derive(Clone, Copy)]
enum Step {
    Inside,
    /// The hooks run on this thread.
    Hooks(ThreadId, i32),
    /// The rest is up to the system, or to the watchdog.
    Outside,
}

static DOOR: Mutex<Door> =
    Mutex::new(Door { hooks: Vec::new(), next: 1, limit: EXIT_LIMIT, step: Step::Inside });

fn door() -> MutexGuard<'static, Door> {
    DOOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs this when the process leaves by [`exit`], before those that were registered earlier. Leaving in any other way
/// (the end of `main`, `std::process::exit`, a signal, a panic that aborts) runs no hook.
pub fn on_exit(name: impl Into<String>, hook: impl FnOnce() + Send + 'static) -> HookId {
    let (name, run) = (name.into(), Box::new(hook));
    let mut door = door();
    let id = HookId(door.next);
    door.next += 1;
    door.hooks.push(Hook { id, name, run });
    id
}

/// Takes a hook back. False if it has run, or is running.
pub fn forget(id: HookId) -> bool {
    let mut door = door();
    let place = door.hooks.iter().position(|hook| hook.id == id);
    let hook = place.map(|place| door.hooks.remove(place));
    // What the hook holds is dropped after the lock.
    drop(door);
    hook.is_some()
}

/// Sets how long an [`exit`] may take; one that has begun keeps its time.
pub fn set_exit_limit(limit: Duration) {
    door().limit = limit;
}

/// Ends the process in order: the hooks, the last one first, then `std::process::exit`.
///
/// Within the limit (5 s by default), or the process ends at once with the same status: a hook that hangs, a function of
/// C's `atexit` that does, or a full pipe as stdout, which nobody reads. A hook that panics is logged and stops no other.
/// Whoever calls it while it is under way waits here for the end, and the first status holds.
pub fn exit(status: i32) -> ! {
    let here = std::thread::current().id();
    let mut door = door();
    let status = match door.step {
        Step::Inside => {
            door.step = Step::Hooks(here, status);
            let limit = door.limit;
            drop(door);
            set_watchdog(limit, status);
            status
        }
        // A hook has called it: it cannot return to that hook, so what is left is done from here.
        Step::Hooks(thread, first) if thread == here => {
            drop(door);
            first
        }
        Step::Hooks(..) | Step::Outside => {
            drop(door);
            wait_for_the_end()
        }
    };
    run_hooks();
    std::process::exit(status)
}

/// Ends the process with this status when the time is over.
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
        // Nobody would see to it that the hooks end. An exit that may hang is worse than one without hooks.
        exit_now(status);
    }
}

/// Hooks that are registered meanwhile are run, too; the watchdog bounds them all.
fn run_hooks() {
    loop {
        let mut door = door();
        let Some(Hook { name, run, .. }) = door.hooks.pop() else {
            door.step = Step::Outside;
            return;
        };
        drop(door);
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            undisturbed(|| tracing::warn!(hook = name, "an exit hook panicked"));
        }
    }
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}
