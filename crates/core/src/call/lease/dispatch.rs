//! Defers filling the places that become free while a thread hands calls over, or answers several.
//!
//! A worker may answer a call before `execute` returns. Handing over the next call from inside `execute` would recurse
//! as deep as the queue is long. A worker may also answer many calls at the same time, and the scheduler's lock should be
//! taken once for all of them. So the free place is only noted, and the outermost `Dispatch` of the thread fills it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What fills the free places of workers.
pub(crate) trait Feeder: Send + Sync {
    /// Gives waiting calls to a worker that may have free places.
    fn feed(self: Arc<Self>, index: usize);
}

thread_local! {
    static DISPATCHING: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<(Arc<dyn Feeder>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as handing over or answering calls. When the outermost value is dropped, it does the deferred work.
pub(crate) struct Dispatch {
    is_outermost: bool,
}

impl Dispatch {
    pub(crate) fn begin() -> Self {
        Self { is_outermost: !DISPATCHING.replace(true) }
    }

    /// Gives waiting calls to a worker: now, or later if this thread has begun a `Dispatch`.
    pub(crate) fn feed(feeder: Arc<dyn Feeder>, index: usize) {
        if !DISPATCHING.get() {
            return feeder.feed(index);
        }
        LATER.with_borrow_mut(|noted| {
            let is_same = |(other, last): &(Arc<dyn Feeder>, usize)| {
                *last == index && std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&feeder))
            };
            if !noted.last().is_some_and(is_same) {
                noted.push((feeder, index));
            }
        });
    }
}

/// Runs a function that answers calls. Places that become free are filled once, after the function has returned.
///
/// An adapter whose worker answers many calls at the same time uses this, so that the next calls also travel together.
pub fn answer_together(answer: impl FnOnce()) {
    let _dispatch = Dispatch::begin();
    answer();
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        if self.is_outermost {
            while let Some((feeder, index)) = LATER.with_borrow_mut(Vec::pop) {
                feeder.feed(index);
            }
            DISPATCHING.set(false);
        }
    }
}
