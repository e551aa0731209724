//! The harness that proves custody with real processes: nothing here is a mock.
//!
//! A [`Case`] is one fault in one [`GridTier`]: a temporary state directory, innocent bystanders, a
//! [`HostProcess`] that really uses the library, and a [`Tag`] that every hostile process carries, so that
//! the census of survivors depends on nothing that custody does. The harness must not know how custody
//! works inside; what it uses besides the public surface are process names and `/proc`.

pub mod bench;
pub mod built;
pub mod bystander;
pub mod case;
pub mod census;
pub mod cgroup;
pub mod confinement;
pub mod deadline;
pub mod fault;
pub mod host;
pub mod immutable;
pub mod innocent;
pub mod ledger;
pub mod mailbox;
pub mod other_user;
pub mod pidfd;
pub mod private_mount;
pub mod pty;
pub mod random;
pub mod refused;
pub mod tag;
pub mod tier;
pub mod tracer;
pub mod unproven;
pub mod verdict;

pub use case::{Case, Programs};
pub use census::Found;
pub use deadline::Deadline;
pub use fault::Fault;
pub use host::{HostProcess, OpenAs, Reply, WorkerLine};
pub use pidfd::Process;
pub use refused::Refused;
pub use tag::Tag;
pub use tier::GridTier;
pub use unproven::unproven;
pub use verdict::{Allowed, Cell, When};

/// All rounds where the environment asks for a full pass, a quarter of them unless it does, a few for a quick one; never
/// fewer faults.
pub fn rounds(full: usize, quick: usize) -> usize {
    match () {
        () if is_full() => full,
        () if is_quick() => quick,
        () => full.div_ceil(4).max(quick),
    }
}

/// Whether `SNAKEPIT_QUICK` is set.
pub fn is_quick() -> bool {
    is_set("SNAKEPIT_QUICK")
}

/// Whether `SNAKEPIT_FULL` is set.
pub fn is_full() -> bool {
    is_set("SNAKEPIT_FULL")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether this process may do what only root may. A case that needs it says so when it cannot be proven.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
