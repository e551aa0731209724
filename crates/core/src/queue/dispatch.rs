//! Work for a worker whose place got free while a call was being handed to it.
//!
//! A worker may answer a call before `execute` returns. The next one would then be handed over from inside that, and so
//! on, as deep as the queue is long: so it is noted, and done by the outermost.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::pool::PoolInner;

thread_local! {
    static DISPATCHING: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<(Arc<PoolInner>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread hands over a call. The outermost one does what was noted.
pub(crate) struct Dispatch {
    is_outermost: bool,
}

impl Dispatch {
    pub(crate) fn begin() -> Self {
        Self { is_outermost: !DISPATCHING.replace(true) }
    }

    /// Whether the worker is fed when the handing over is done, rather than now.
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
