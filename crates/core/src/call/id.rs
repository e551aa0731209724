//! The numbers of calls.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of calls whose numbers a thread takes at a time.
const BLOCK: u64 = 256;

/// The number of a call, unique in its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// Returns a new number. A call keeps its number wherever it goes.
    ///
    /// A thread takes [`BLOCK`] numbers at a time, so that threads do not wait for each other.
    pub(crate) fn next() -> Self {
        static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        NEXT.with(|next| {
            let mut number = next.get();
            if number.is_multiple_of(BLOCK) {
                number = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * BLOCK + 1;
            }
            next.set(number + 1);
            Self(number)
        })
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
