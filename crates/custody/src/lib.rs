//! Custody of worker processes: no worker, and nothing that it starts, outlives its owner.
//!
//! [`Run::open`] clears what dead hosts left behind, starts the keeper and returns the run.
//! [`Run::spawn`] starts a [`Command`] below the keeper, recorded before its first instruction.
//! [`Run::stop`] ends everything within a bounded time and names the survivors.
//! When the host dies instead, however it dies, the keeper and the shims do the same without it.
//! [`end_all`] is the emergency exit of a living host; [`SignalNotes`] tells a host of signals, if it asks for that.
//!
//! ```no_run
//! use snakepit_custody::{Command, Config, Run};
//!
//! let run = Run::open(Config::default())?;
//! let worker = run.spawn(Command::new("python3").arg("worker.py"))?;
//! println!("{} ended with {}", worker.id(), worker.wait().status);
//! assert!(run.stop().is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is synchronous and free of any runtime; [`WorkerProcess::exited`] is a plain future for those who have one.
//!
//! The folders, in the order of a process's life: `run` → `spawn` → `link` → `keeper/` (a program of its own: it records,
//! holds the gate, and starts the shims) → `serve` → `stop` → `reap`. Below them: `process` (who a process is), `ledger` and
//! `state` (what is on disk); beside them: `doctor` and `failpoint`. `portable/` replaces some files on other systems.
#![cfg_attr(docsrs, feature(doc_cfg))]

// `cfg(portable)` is set by build.rs: on every Unix but Linux, and on Linux by `--cfg snakepit_portable`. On systems that
// cannot be supported, as Windows, build.rs says so in a sentence.
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

pub use doctor::probe::{Probe, probe};
pub use process::id::{InvalidId, Pgid, Pid, RunId, WorkerId};
pub use process::machine::PidScopeError;
pub use reap::life::RunLife;
pub use reap::listing::{ProcessEntry, RunEntry, ledger};
pub use reap::reaper::cleanup;
pub use reap::report::{CleanupReport, Killed, LetBe, LetBeReason, ReapedRun};
pub use run::config::{Config, Containment, LedgerSync, Session, Tier};
pub use run::event::{CustodyEvent, CustodyEvents, listen};
pub use run::handle::{OpenError, Run};
pub use run::open_runs::{end_all, stop_all};
pub use run::startup;
pub use serve::exit::{Exit, ExitStatus};
pub use serve::worker_process::{SignalError, WorkerProcess};
pub use spawn::command::{Command, MAX_HANDED_FDS, Rlimit, Stdio, TerminalUse};
pub use spawn::error::SpawnError;
pub use state::file_limit::{catch_file_size_limit, without_file_size_signal};
pub use state::{DirError, KeepError, Kept, Owner, PrivateDir, StateError, default_state_dir};
pub use stop::report::{StopReport, Survivor};
pub use stop::signals::{NotesError, Signal, SignalNotes, exit_now};

/// The variable in every worker's environment that names its run.
pub const RUN_ID_VARIABLE: &str = "SNAKEPIT_RUN_ID";
/// The variable in every worker's environment that names the worker.
pub const WORKER_ID_VARIABLE: &str = "SNAKEPIT_WORKER_ID";

/// The looks at runs and processes at which `SNAKEPIT_FAILPOINTS` can ask for an error.
#[cfg(feature = "failpoints")]
pub fn failpoint_looks() -> &'static [&'static str] {
    failpoint::LOOKS
}

/// The steps of a spawn at which `SNAKEPIT_FAILPOINTS` can ask for a fault.
#[cfg(feature = "failpoints")]
pub fn failpoint_steps() -> &'static [&'static str] {
    failpoint::STEPS
}

/// Sends a signal to the calling thread and returns once it has been handled. A signal to the process might reach another
/// thread, and this one would go on. For faults in tests.
#[cfg(feature = "failpoints")]
pub fn raise(signal: i32) {
    // SAFETY: no precondition; what the signal does is what the caller asks for.
    unsafe { libc::raise(signal) };
}
