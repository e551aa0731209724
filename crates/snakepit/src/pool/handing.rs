//! Work for a worker whose place got free while a call was being handed to it.
//!
//! A worker may answer a call before `execute` returns. The next one would then be handed over from inside that, and so
//! on, as deep as the queue is long: so it is noted, and done by the outermost.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::Shared;

thread_local! {
    static HANDING: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<(Arc<Shared>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread hands over a call. The outermost one does what was noted.
pub(super) struct Handing {
    is_outermost: bool,
}

impl Handing {
    pub(super) fn begin() -> Self {
        Self { is_outermost: !HANDING.replace(true) }
    }

    /// Whether the worker is fed when the handing over is done, rather than now.
    pub(super) fn feeds_later(pool: &Arc<Shared>, post: usize) -> bool {
        let later = HANDING.get();
        if later {
            LATER.with_borrow_mut(|noted| noted.push((Arc::clone(pool), post)));
        }
        later
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        if self.is_outermost {
            while let Some((pool, post)) = LATER.with_borrow_mut(Vec::pop) {
                pool.feed(post);
            }
            HANDING.set(false);
        }
    }
}
