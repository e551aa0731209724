//! A cell of the grid's table: when survivors are counted, and which are allowed.

use crate::CensusEntry;

/// When the survivors are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CensusTime {
    /// After the fault, when only custody has acted.
    AtOnce,
    /// After the next host has started in the same state directory.
    NextStart,
}

/// Which processes may survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllowedSurvivors {
    /// None.
    Nobody,
    /// A process that is no longer in a group that custody made.
    WhoLeftTheGroup,
    /// A process without the run's marker in its environment.
    WhoShedTheMarker,
}

/// The expectation for one fault in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GridCell {
    /// When to count.
    pub when: CensusTime,
    /// Which survivors are allowed.
    pub allowed: AllowedSurvivors,
}

impl GridCell {
    /// No process survives, without help.
    pub const ZERO: Self = Self { when: CensusTime::AtOnce, allowed: AllowedSurvivors::Nobody };
    /// No process survives the next start.
    pub const ZERO_NEXT: Self = Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::Nobody };
    /// At once, only processes that left the group may survive.
    pub const LEFT: Self = Self { when: CensusTime::AtOnce, allowed: AllowedSurvivors::WhoLeftTheGroup };
    /// At the next start, only processes that left the group may survive.
    pub const LEFT_NEXT: Self =
        Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::WhoLeftTheGroup };
    /// At the next start, only processes that shed the marker may survive.
    pub const SHED_NEXT: Self =
        Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::WhoShedTheMarker };

    /// Reports whether the table allows this survivor. `groups` are the groups of the workers.
    pub fn allows(&self, found: &CensusEntry, groups: &[i32]) -> bool {
        match self.allowed {
            AllowedSurvivors::Nobody => false,
            AllowedSurvivors::WhoLeftTheGroup => !groups.contains(&found.pgid),
            AllowedSurvivors::WhoShedTheMarker => found.run.is_none(),
        }
    }
}
