//! The columns of the grid.

use crate::unproven;

/// A tier as the grid tests it: `auto` and `shim` differ in the cgroup behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridTier {
    /// A PID namespace per worker.
    Namespace,
    /// Shims, with `cgroup.kill` behind them where this machine allows it.
    Auto,
    /// Shims alone.
    Shim,
    /// Process groups alone.
    Group,
}

impl GridTier {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 4] = [Self::Namespace, Self::Auto, Self::Shim, Self::Group];

    /// As the host program spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Auto => "auto",
            Self::Shim => "shim",
            Self::Group => "group",
        }
    }

    /// Why this machine cannot provide the tier, found out without custody.
    pub fn refusal(self, user: Option<u32>) -> Option<String> {
        match self {
            Self::Namespace => unproven::namespace_refusal(user),
            // These need nothing.
            Self::Auto | Self::Shim | Self::Group => None,
        }
    }

    /// Its column.
    pub fn column(self) -> usize {
        self as usize
    }
}
