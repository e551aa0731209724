//! Custody of worker processes: no worker, and no process that a worker starts, outlives its owner.
//!
//! [`Run::open`] clears what dead hosts left behind, starts the keeper and returns the run. [`Run::spawn`] starts a
//! [`Command`] below the keeper and records it before its first instruction runs. [`Run::stop`] ends every worker
//! within a bounded time and names the survivors. If the host dies instead, for whatever reason, the keeper and the
//! shims end the workers without it. [`end_all`] stops every open run of a living host in an emergency. [`SignalNotes`]
//! records the signals that a host receives, for hosts that ask for it.
//!
//! ```no_run
//! use snakepit_custody::{Command, CustodyOptions, Run};
//!
//! let run = Run::open(CustodyOptions::default())?;
//! let worker = run.spawn(Command::new("python3").arg("worker.py"))?;
//! println!("{} ended with {}", worker.id(), worker.wait().status);
//! assert!(run.stop().is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is synchronous and needs no async runtime. [`WorkerProcess::exited`] is a plain future for hosts that have
//! one.
//!
//! The folders, in the order of a process's life: `run` → `spawn` → `link` → `keeper/` (a separate program that writes
//! the ledger, holds new processes at the gate and starts the shims) → `serve` → `stop` → `reap`. Below them: `process`
//! (the identity of processes), `ledger` and `state` (the files on disk). Beside them: `doctor` and `failpoint`.
//! `portable/` replaces some files on systems other than Linux.
#![cfg_attr(docsrs, feature(doc_cfg))]

// build.rs sets `cfg(portable)` on every Unix except Linux, and on Linux with `--cfg snakepit_portable`. On unsupported
// systems, such as Windows, build.rs stops with an explanation.
mod doctor;
mod failpoint;
mod ledger;
mod link;
#[cfg(portable)]
mod portable;
mod process;
mod reap;
mod run;
mod serve;
mod spawn;
mod state;
mod stop;

pub use doctor::probe::{Probe, TierProbe, probe};
pub use process::id::{InvalidId, Pgid, Pid, RunId, WorkerId};
pub use process::machine::PidScopeError;
pub use reap::listing::{ProcessEntry, RunEntry, ledger};
pub use reap::liveness::RunLife;
pub use reap::reaper::cleanup;
pub use reap::report::{CleanupReport, Killed, LetBe, LetBeReason, ReapedRun};
pub use run::event::{CustodyEvent, CustodyEvents, listen};
pub use run::handle::{OpenError, Run};
pub use run::open_runs::{StoppedRun, end_all, stop_all};
pub use run::options::{Containment, CustodyOptions, LedgerSync, Session, Tier};
pub use run::startup;
pub use serve::exit::{Exit, ExitStatus};
pub use serve::worker_process::{SignalError, WorkerProcess};
pub use spawn::command::{Command, MAX_HANDED_FDS, Rlimit, Stdio, TerminalUse};
pub use spawn::error::SpawnError;
pub use state::file_limit::{catch_file_size_limit, without_file_size_signal};
pub use state::{DirError, KeepError, Kept, Owner, PrivateDir, StateError, default_state_dir};
pub use stop::report::{StopReport, Survivor};
pub use stop::signals::{NotesError, Signal, SignalNotes, exit_now};

/// The environment variable that carries the run's id in every worker.
pub const RUN_ID_VARIABLE: &str = "SNAKEPIT_RUN_ID";
/// The environment variable that carries the worker's id in every worker.
pub const WORKER_ID_VARIABLE: &str = "SNAKEPIT_WORKER_ID";

/// Returns the names of the checks on runs and processes that `SNAKEPIT_FAILPOINTS` can make fail.
#[cfg(feature = "failpoints")]
pub fn failpoint_looks() -> &'static [&'static str] {
    failpoint::LOOKS
}

/// Returns the names of the steps of a spawn at which `SNAKEPIT_FAILPOINTS` can inject a fault.
#[cfg(feature = "failpoints")]
pub fn failpoint_steps() -> &'static [&'static str] {
    failpoint::STEPS
}

/// Sends a signal to the calling thread and returns once it has been handled. A signal to the process might be
/// delivered to another thread while this one continues. For faults in tests.
#[cfg(feature = "failpoints")]
pub fn raise(signal: i32) {
    // SAFETY: no precondition; the caller asks for the effect of the signal.
    unsafe { libc::raise(signal) };
}

#[cfg(all(test, not(portable)))]
mod tests {
    mod errors;
    mod reports;
}
