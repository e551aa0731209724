//! What container runtimes and service managers make of a process: filters, capabilities, and another view of the
//! machine. The runtimes themselves are not at hand; their published defaults are.
//!
//! A [`Profile`] holds the facts of one of them, in a file of its own below `profiles/`. [`Profile::enter`] turns the
//! calling process into what that runtime starts programs as. The lists name what is refused, not what is allowed:
//! the same filter, told shorter. A call that no profile lists and no kernel of today answers is left out.
//!
//! What is not imitated: a PID namespace (the death of its first process would end everybody in it, and prove nothing
//! about us), other root file systems, and LSM policies.

mod capabilities;
mod filter;
mod profiles;
mod view;

use std::io;

pub use capabilities::Capabilities;
pub use filter::Refusal;
pub use profiles::ALL;
pub use view::{CgroupView, ProcView};

/// What one runtime makes of a process.
#[derive(Debug)]
pub struct Profile {
    /// As the command line spells it.
    pub name: &'static str,
    /// The system calls that get an error instead of being made.
    pub refusals: &'static [Refusal],
    /// What root may still do.
    pub capabilities: Capabilities,
    /// Whether programs can gain privileges by being run.
    pub privileges: Privileges,
    /// What `/proc` shows.
    pub proc: ProcView,
    /// What is to be seen of control groups.
    pub cgroups: CgroupView,
}

/// Whether programs can gain privileges by being run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// Setuid programs work.
    CanGrow,
    /// `no_new_privs` is set.
    CannotGrow,
}

/// The profile of this name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    ALL.into_iter().find(|profile| profile.name == name)
}

/// Takes every control group out of the calling process's view, and nothing else. Needs root and one thread.
pub fn without_cgroups() -> io::Result<()> {
    view::enter(ProcView::Whole, CgroupView::Absent)
}

impl Profile {
    /// Makes the calling process one of this runtime's. Needs root; the process must have one thread. After an
    /// error it may be confined in part, and should end.
    pub fn enter(&self) -> io::Result<()> {
        view::enter(self.proc, self.cgroups)?;
        let filters = filter::compile(self.refusals)?;
        match self.privileges {
            // As runtimes do it: the filter comes while the process still may set one, the capabilities go last.
            Privileges::CanGrow => {
                filters.iter().try_for_each(filter::install)?;
                capabilities::keep_only(self.capabilities)
            }
            // Here the filter may refuse `capset`, and needs no privilege.
            Privileges::CannotGrow => {
                capabilities::keep_only(self.capabilities)?;
                capabilities::gain_no_more()?;
                filters.iter().try_for_each(filter::install)
            }
        }
    }
}
