//! In which order calls that wait are served.

/// The order in which queued calls are served: by priority, then by age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueKey {
    rank: i16,
    number: u64,
}

impl QueueKey {
    /// Calls that others wait for come before all: they free workers.
    pub(crate) const NESTED_RANK: i16 = i16::MIN;

    pub(crate) fn new(priority: i8, number: u64) -> Self {
        Self { rank: -i16::from(priority), number }
    }

    pub(crate) fn nested(number: u64) -> Self {
        Self { rank: Self::NESTED_RANK, number }
    }

    pub(crate) fn is_nested(self) -> bool {
        self.rank == Self::NESTED_RANK
    }
}
