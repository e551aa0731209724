//! What a cell of the table says, and how a survivor is held against it.

use crate::Found;

/// When the survivors are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// After the fault, by what custody does without help.
    AtOnce,
    /// After the next host has started in the same state directory.
    NextStart,
}

/// Who may survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Nobody.
    Nobody,
    /// A process that is no longer in a group that custody made.
    WhoLeftTheGroup,
    /// A process without the run's marker in its environment.
    WhoShedTheMarker,
}

/// One cell: what is expected of one fault in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// When to count.
    pub when: When,
    /// Whom to forgive.
    pub allowed: Allowed,
}

impl Cell {
    /// Nobody survives, and nobody has to help.
    pub const ZERO: Self = Self { when: When::AtOnce, allowed: Allowed::Nobody };
    /// Nobody survives the next start.
    pub const ZERO_NEXT: Self = Self { when: When::NextStart, allowed: Allowed::Nobody };
    /// At once, and whoever left the group is forgiven.
    pub const LEFT: Self = Self { when: When::AtOnce, allowed: Allowed::WhoLeftTheGroup };
    /// At the next start, and whoever left the group is forgiven.
    pub const LEFT_NEXT: Self = Self { when: When::NextStart, allowed: Allowed::WhoLeftTheGroup };
    /// At the next start, and whoever shed the marker is forgiven.
    pub const SHED_NEXT: Self = Self { when: When::NextStart, allowed: Allowed::WhoShedTheMarker };

    /// Whether this survivor is one that the table forgives. `groups` are the workers' own.
    pub fn forgives(&self, found: &Found, groups: &[i32]) -> bool {
        match self.allowed {
            Allowed::Nobody => false,
            Allowed::WhoLeftTheGroup => !groups.contains(&found.pgid),
            Allowed::WhoShedTheMarker => found.run.is_none(),
        }
    }
}
