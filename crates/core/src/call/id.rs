//! The numbers of calls.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a call, unique in its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// Returns a new number. A call keeps its number wherever it goes.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates the number that a worker sent.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, as the worker sees it.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
