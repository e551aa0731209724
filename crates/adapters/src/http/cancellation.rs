//! The cancellation of a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::stream::BodyStream;

/// Shared by a call's task and the function that cancels the call.
#[derive(Default)]
pub(super) struct RequestCancellation {
    pub(super) cancelled: Notify,
    is_sent: AtomicBool,
    /// The socket that carries the request, from sending it until its stream begins.
    carrier: Mutex<Option<BodyStream>>,
}

impl RequestCancellation {
    pub(super) fn carrier(&self) -> MutexGuard<'_, Option<BodyStream>> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn travels_by(&self, carrier: &BodyStream) {
        self.is_sent.store(true, Ordering::Relaxed);
        *self.carrier() = Some(carrier.clone());
    }

    /// Reports whether the worker may have received the request.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }
}
