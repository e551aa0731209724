//! Imitates how container runtimes and service managers confine a process: filters, capabilities, and another view of
//! the machine, as in the published defaults of each runtime.
//!
//! A [`Profile`] holds the facts of one runtime, in a file below `profiles/`. [`Profile::enter`] confines the calling
//! process as that runtime confines its programs. The lists name the refused calls instead of the allowed ones: the
//! filter is the same, and the list is shorter. Calls that no current kernel implements are left out.
//!
//! Not imitated are a PID namespace (the death of its first process would end all others and prove nothing about
//! custody), other root file systems, and LSM policies.

mod capabilities;
mod filter;
mod profiles;
mod view;

use std::io;

pub use capabilities::CapabilitySet;
pub use filter::SyscallRefusal;
pub use profiles::ALL;
pub use view::{CgroupView, ProcView};

/// How one runtime confines a process.
#[derive(Debug)]
pub struct Profile {
    /// The name on the command line.
    pub name: &'static str,
    /// The system calls that get an error instead of being executed.
    pub refusals: &'static [SyscallRefusal],
    /// What root may still do.
    pub capabilities: CapabilitySet,
    /// Whether programs can gain privileges when they are executed.
    pub privileges: Privileges,
    /// What `/proc` shows.
    pub proc: ProcView,
    /// Which control groups are visible.
    pub cgroups: CgroupView,
}

/// Whether programs can gain privileges when they are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// Setuid programs work.
    CanGrow,
    /// `no_new_privs` is set.
    CannotGrow,
}

/// Returns the profile of this name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    ALL.into_iter().find(|profile| profile.name == name)
}

/// Hides every control group from the calling process, and nothing else. Needs root and a single thread.
pub fn without_cgroups() -> io::Result<()> {
    view::enter(ProcView::Whole, CgroupView::Absent)
}

impl Profile {
    /// Confines the calling process as this runtime does. Needs root and a single thread. After an error, the process
    /// may be partly confined and should end.
    pub fn enter(&self) -> io::Result<()> {
        view::enter(self.proc, self.cgroups)?;
        let filters = filter::compile(self.refusals)?;
        match self.privileges {
            // Runtimes use this order: the filter is installed while the process still may do so, and the capabilities
            // are dropped last.
            Privileges::CanGrow => {
                filters.iter().try_for_each(filter::install)?;
                capabilities::keep_only(self.capabilities)
            }
            // Here the filter may refuse `capset`, but needs no privilege.
            Privileges::CannotGrow => {
                capabilities::keep_only(self.capabilities)?;
                capabilities::gain_no_more()?;
                filters.iter().try_for_each(filter::install)
            }
        }
    }
}
