//! What a group does when one of its loops crashes.

use std::time::Duration;

use crate::mailbox::Backoff;

/// What a group does when one of its loops crashes.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::loops::{CrashPolicy, LoopGroup};
/// use snakepit::mailbox::Backoff;
///
/// let pauses = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// let group = LoopGroup::new("service").crash_policy(CrashPolicy::Restart(pauses));
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum CrashPolicy {
    /// The other loops are shut down, and the group's run ends with the error.
    #[default]
    StopAll,
    /// The loop runs again after a pause, which doubles with each crash. After a run longer than the longest pause, the
    /// pauses start over with the first.
    Restart(Backoff),
    /// The other loops continue.
    Ignore,
}

impl CrashPolicy {
    /// Returns the policy that restarts the loop, after 100 ms at first and 30 s at most.
    pub fn restart() -> Self {
        Self::Restart(Backoff::new(Duration::from_millis(100), Duration::from_secs(30)))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StopAll => "stop_all",
            Self::Restart(_) => "restart",
            Self::Ignore => "ignore",
        }
    }
}
