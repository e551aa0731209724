//! A cell of the grid's table: when survivors are counted, and which are allowed.

use crate::CensusEntry;

/// When the survivors are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CensusTime {
    /// After the fault, by what custody does without help.
    AtOnce,
    /// After the next host has started in the same state directory.
    NextStart,
}

/// Who may survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllowedSurvivors {
    /// Nobody.
    Nobody,
    /// A process that is no longer in a group that custody made.
    WhoLeftTheGroup,
    /// A process without the run's marker in its environment.
    WhoShedTheMarker,
}

/// One cell: what is expected of one fault in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GridCell {
    /// When to count.
    pub when: CensusTime,
    /// Which survivors are allowed.
    pub allowed: AllowedSurvivors,
}

impl GridCell {
    /// Nobody survives, without help.
    pub const ZERO: Self = Self { when: CensusTime::AtOnce, allowed: AllowedSurvivors::Nobody };
    /// Nobody survives the next start.
    pub const ZERO_NEXT: Self = Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::Nobody };
    /// At once; processes that left the group may survive.
    pub const LEFT: Self = Self { when: CensusTime::AtOnce, allowed: AllowedSurvivors::WhoLeftTheGroup };
    /// At the next start; processes that left the group may survive.
    pub const LEFT_NEXT: Self =
        Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::WhoLeftTheGroup };
    /// At the next start; processes that shed the marker may survive.
    pub const SHED_NEXT: Self =
        Self { when: CensusTime::NextStart, allowed: AllowedSurvivors::WhoShedTheMarker };

    /// Whether the table allows this survivor. `groups` are the workers' own.
    pub fn allows(&self, found: &CensusEntry, groups: &[i32]) -> bool {
        match self.allowed {
            AllowedSurvivors::Nobody => false,
            AllowedSurvivors::WhoLeftTheGroup => !groups.contains(&found.pgid),
            AllowedSurvivors::WhoShedTheMarker => found.run.is_none(),
        }
    }
}
