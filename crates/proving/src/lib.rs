//! The harness that tests custody, loops and mailboxes with real processes. Nothing here is a mock.
//!
//! A [`Case`] is one fault in one [`GridTier`]. It has a temporary state directory, bystanders, a [`HostProcess`] that
//! really uses the library, and a [`Tag`] that every hostile process carries. Thanks to the tag, the census of
//! survivors does not depend on custody. The harness must not know how custody works inside. Besides the public
//! surface, it uses only process names and `/proc`.

pub mod built;
pub mod bystander;
pub mod case;
pub mod census;
pub mod cgroup;
pub mod confinement;
pub mod deadline;
pub mod grid_cell;
pub mod host;
pub mod immutable_paths;
pub mod ledger;
pub mod machine;
pub mod mailbox_faults;
pub mod other_user;
pub mod pidfd;
pub mod private_mount;
pub mod pty;
pub mod random;
pub mod refused_syscall;
pub mod reused_pid;
pub mod spawn_fault;
pub mod tag;
pub mod tier;
pub mod tracer;
pub mod unit;
pub mod unproven;

pub use case::{Case, Programs};
pub use census::CensusEntry;
pub use deadline::Deadline;
pub use grid_cell::{AllowedSurvivors, CensusTime, GridCell};
pub use host::{HostProcess, HostReply, OpenAs, WorkerLine};
pub use pidfd::ObservedProcess;
pub use refused_syscall::RefusedSyscall;
pub use spawn_fault::SpawnFault;
pub use tag::Tag;
pub use tier::GridTier;
pub use unproven::unproven;

/// Returns the number of rounds: all of them with `SNAKEPIT_FULL`, a few with `SNAKEPIT_QUICK`, and otherwise a
/// quarter. The number of faults never changes.
pub fn rounds(full: usize, quick: usize) -> usize {
    match () {
        () if is_full() => full,
        () if is_quick() => quick,
        () => full.div_ceil(4).max(quick),
    }
}

/// Reports whether `SNAKEPIT_QUICK` is set.
pub fn is_quick() -> bool {
    is_set("SNAKEPIT_QUICK")
}

/// Reports whether `SNAKEPIT_FULL` is set.
pub fn is_full() -> bool {
    is_set("SNAKEPIT_FULL")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Reports whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
