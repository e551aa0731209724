//! The syntax of `SNAKEPIT_FAILPOINTS`: `step=action;step@n=action`. Compiled into library and keeper, so this file
//! uses only std.
//!
//! The crate `fail` is not used because the keeper is built from std alone and its faults kill other processes.

/// A requested fault.
pub(crate) struct PlannedFault {
    pub(crate) step: String,
    /// Limits the fault to one spawn, or to the n-th time; `None` means always.
    pub(crate) only: Option<u64>,
    pub(crate) action: String,
}

impl PlannedFault {
    /// Parses all faults of a plan and skips those that are malformed.
    pub(crate) fn parse_all(plan: &str) -> Vec<Self> {
        plan.split(';').filter_map(Self::parse).collect()
    }

    fn parse(fault: &str) -> Option<Self> {
        let (at, action) = fault.split_once('=')?;
        let (step, only) = match at.split_once('@') {
            Some((step, only)) => (step, Some(only.parse().ok()?)),
            None => (at, None),
        };
        Some(Self { step: step.to_owned(), only, action: action.to_owned() })
    }

    /// Returns N if the action is `errno:N`.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.action.strip_prefix("errno:")?.parse().ok()
    }
}
