//! The cancellation of a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::stream::BodyStream;

/// What a call's task waits for besides the worker.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) cancelled: Notify,
    is_sent: AtomicBool,
    /// What the request travels by, once it is sent, until its stream comes back.
    carrier: Mutex<Option<BodyStream>>,
}

impl Flow {
    pub(super) fn carrier(&self) -> MutexGuard<'_, Option<BodyStream>> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn travels_by(&self, carrier: &BodyStream) {
        self.is_sent.store(true, Ordering::Relaxed);
        *self.carrier() = Some(carrier.clone());
    }

    /// Whether the worker may have heard of the request.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }
}
