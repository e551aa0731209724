//! Calls without an answer, until the end of their worker.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::Call;

/// They are kept until the worker's end is known: a place that is free again would be given to the next call. After that
/// nobody would look at them again, and each of them holds the worker that holds it.
pub(super) struct LostCalls(Mutex<Option<Kept>>);

#[derive(Default)]
struct Kept {
    /// Those that the worker may have begun.
    lost: Vec<Call>,
    /// Those that it was surely never told of.
    unsent: Vec<Call>,
}

impl LostCalls {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Kept::default())))
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call, or what is to become of it if the end is over.
    fn keep_in(&self, list: impl FnOnce(&mut Kept) -> &mut Vec<Call>, call: Call) -> Option<Call> {
        match &mut *self.kept() {
            Some(kept) => {
                list(kept).push(call);
                None
            }
            None => Some(call),
        }
    }

    /// Keeps a call that is lost with its worker.
    pub(super) fn keep(&self, call: Call) {
        // Dropped without the lock: that may lead back here.
        drop(self.keep_in(|kept| &mut kept.lost, call));
    }

    /// Keeps a call that goes to another worker.
    #[cfg(feature = "http")]
    pub(super) fn keep_unsent(&self, call: Call) {
        if let Some(late) = self.keep_in(|kept| &mut kept.unsent, call) {
            late.give_back();
        }
    }

    /// Whether the worker has come to its end, and takes no more calls.
    pub(super) fn is_over(&self) -> bool {
        self.kept().is_none()
    }

    /// The end: gives back what was not sent, and drops the others.
    pub(super) fn end(&self) {
        let kept = self.kept().take().unwrap_or_default();
        kept.unsent.into_iter().for_each(Call::give_back);
        drop(kept.lost);
    }
}
