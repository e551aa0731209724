//! Calls that are lost with their worker.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::Call;

/// They are kept until the worker's end is known: a place that is free again would be given to the next call. After that
/// nobody would look at them again, and each of them holds the worker that holds it.
pub(super) struct LostCalls(Mutex<Option<Vec<Call>>>);

impl LostCalls {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    fn calls(&self) -> MutexGuard<'_, Option<Vec<Call>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call until the end, or drops it if that is over.
    pub(super) fn keep(&self, call: Call) {
        let late = match &mut *self.calls() {
            Some(calls) => {
                calls.push(call);
                None
            }
            None => Some(call),
        };
        drop(late);
    }

    /// Whether the worker has come to its end, and takes no more calls.
    pub(super) fn is_over(&self) -> bool {
        self.calls().is_none()
    }

    /// The end: drops them all.
    pub(super) fn end(&self) {
        let calls = self.calls().take();
        drop(calls);
    }
}
