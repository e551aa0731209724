//! Defers work for a worker whose place becomes free while a call is being handed to it.
//!
//! A worker may answer a call before `execute` returns. Handing over the next call from inside `execute` would recurse
//! as deep as the queue is long. So the free place is only noted, and the outermost `Dispatch` of the thread fills it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::pool::PoolInner;

thread_local! {
    static DISPATCHING: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<(Arc<PoolInner>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as handing over a call. When the outermost value is dropped, it does the deferred work.
pub(crate) struct Dispatch {
    is_outermost: bool,
}

impl Dispatch {
    pub(crate) fn begin() -> Self {
        Self { is_outermost: !DISPATCHING.replace(true) }
    }

    /// Defers feeding the worker if this thread is handing over a call. Returns whether it did.
    pub(crate) fn feeds_later(pool: &Arc<PoolInner>, index: usize) -> bool {
        let later = DISPATCHING.get();
        if later {
            LATER.with_borrow_mut(|noted| noted.push((Arc::clone(pool), index)));
        }
        later
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        if self.is_outermost {
            while let Some((pool, index)) = LATER.with_borrow_mut(Vec::pop) {
                pool.feed(index);
            }
            DISPATCHING.set(false);
        }
    }
}
