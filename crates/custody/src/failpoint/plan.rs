//! The text of `SNAKEPIT_FAILPOINTS`: `step=action;step@n=action`. Compiled into library and keeper: nothing but std here.
//!
//! Written here, and not with the crate `fail`, because the keeper is built from std alone and its faults kill other
//! processes.

/// A fault that was asked for.
pub(crate) struct PlannedFault {
    pub(crate) step: String,
    /// Only at this spawn, or only the n-th time; `None` means always.
    pub(crate) only: Option<u64>,
    pub(crate) action: String,
}

impl PlannedFault {
    /// Reads all faults of a plan; what cannot be read is left out.
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

    /// The error number of the action `errno:N`.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.action.strip_prefix("errno:")?.parse().ok()
    }
}
