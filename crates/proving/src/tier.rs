//! The columns of the grid.

use crate::unproven;

/// A tier as the grid tests it. `auto` and `shim` differ in whether they have a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridTier {
    /// A PID namespace per worker.
    Namespace,
    /// Shims, with `cgroup.kill` if this machine allows it.
    Auto,
    /// Shims alone.
    Shim,
    /// Process groups alone.
    Group,
}

impl GridTier {
    /// All tiers, in the order of the table's columns.
    pub const ALL: [Self; 4] = [Self::Namespace, Self::Auto, Self::Shim, Self::Group];

    /// Returns the name that the host program uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Auto => "auto",
            Self::Shim => "shim",
            Self::Group => "group",
        }
    }

    /// Returns why this machine cannot provide the tier. The check does not use custody.
    pub fn refusal(self, user: Option<u32>) -> Option<String> {
        match self {
            Self::Namespace => unproven::namespace_refusal(user),
            // These need nothing.
            Self::Auto | Self::Shim | Self::Group => None,
        }
    }

    /// Returns the index of the column.
    pub fn column(self) -> usize {
        self as usize
    }
}
