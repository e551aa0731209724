//! Custody of worker processes: no worker, and nothing that it starts, outlives its owner.
//!
//! [`Run::open`] clears what dead hosts left behind, starts the keeper and gives back the run.
//! [`Run::spawn`] starts a [`Command`] below the keeper, recorded before its first instruction.
//! [`Run::stop`] ends everything, bounded in time, and says who is left if anybody is.
//! When the host dies instead, however it dies, the keeper and the shims do the same without it.
//! [`end_all`] is the emergency exit of a host that lives, [`SignalNotes`] tells it of signals if it asks for that.
//!
//! Synchronous and free of any runtime; [`Worker::exited`] is a plain future for those who have one.
//! The modules, in the order of a process's life: `spawn` → `order`, `link`, `tender` → `keeper/` (a program of its
//! own) → `ledger` → `worker` → `barrier` → `reaper`.

// `cfg(portable)` is set by build.rs: on every Unix but Linux, and on Linux by `--cfg snakepit_portable`. The five
// modules with a second path are the difference, besides the keeper itself. Where nothing can be built, as on
// Windows, build.rs says so in a sentence.
mod barrier;
#[cfg_attr(portable, path = "portable/cgroup.rs")]
mod cgroup;
#[cfg(portable)]
#[path = "portable/checked.rs"]
mod checked;
mod command;
mod config;
mod event;
mod failpoint;
mod file_limit;
mod id;
#[cfg_attr(portable, path = "portable/identity.rs")]
mod identity;
mod ledger;
#[cfg_attr(portable, path = "portable/link.rs")]
mod link;
mod listing;
#[cfg(portable)]
#[path = "portable/look.rs"]
mod look;
#[cfg_attr(portable, path = "portable/machine.rs")]
mod machine;
mod order;
mod probe;
#[cfg(not(portable))]
mod process_table;
mod reaper;
mod run;
mod run_name;
mod runs;
mod signals;
mod spawn;
pub mod startup;
mod state;
mod sweep;
mod sweep_lock;
mod tender;
#[cfg_attr(portable, path = "portable/tiers.rs")]
mod tiers;
mod trial;
mod wait;
#[expect(dead_code, reason = "each side uses its half of the wire")]
mod wire;
mod worker;

pub use barrier::{StopReport, Survivor};
pub use command::{Command, MAX_HANDED_FDS, Rlimit, Stdio, TerminalUse};
pub use config::{Config, Containment, LedgerSync, Session, Tier};
pub use event::{Event, Events, Level, listen};
pub use file_limit::{catch_file_size_limit, without_file_size_signal};
pub use id::{InvalidId, Pgid, Pid, RunId, WorkerId};
pub use listing::{ProcessEntry, RunEntry, ledger};
pub use machine::PlaceError;
pub use probe::{Probe, probe};
pub use reaper::{CleanupReport, ReapedRun, RunLife, cleanup};
pub use run::{OpenError, Run};
pub use runs::{end_all, stop_all};
pub use signals::{NotesError, Signal, SignalNotes, exit_now};
pub use spawn::SpawnError;
pub use state::{DirError, KeepError, Kept, Owner, PrivateDir, StateError, default_state_dir};
pub use sweep::{Killed, LetBe, LetBeReason};
pub use worker::{Exit, ExitStatus, SignalError, Worker};

/// The variable in every worker's environment that names its run.
pub const RUN_ID_VARIABLE: &str = "SNAKEPIT_RUN_ID";
/// The variable in every worker's environment that names the worker.
pub const WORKER_ID_VARIABLE: &str = "SNAKEPIT_WORKER_ID";

#[cfg(feature = "failpoints")]
#[path = "keeper/steps.rs"]
mod steps;

/// The looks at runs and processes at which `SNAKEPIT_FAILPOINTS` can ask for an error.
#[cfg(feature = "failpoints")]
pub fn failpoint_looks() -> &'static [&'static str] {
    failpoint::LOOKS
}

/// The steps of a spawn at which `SNAKEPIT_FAILPOINTS` can ask for a fault.
#[cfg(feature = "failpoints")]
pub fn failpoint_steps() -> &'static [&'static str] {
    steps::STEPS
}

/// Sends this thread a signal, and returns when it has been dealt with; one to the process may reach another thread, and
/// this one would go on. For faults in tests.
#[cfg(feature = "failpoints")]
pub fn raise(signal: i32) {
    // SAFETY: no precondition; what the signal does is what the caller asks for.
    unsafe { libc::raise(signal) };
}
