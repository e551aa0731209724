//! What the task of a call waits for besides its worker: its reader, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::stream::Stream;
use crate::call::{Call, Portion};
use crate::value::Encoded;

/// What a call's task waits for besides the worker.
#[derive(Default)]
pub(super) struct Flow {
    /// What was read of its stream and is not yet granted again.
    ahead: Mutex<Portion>,
    pub(super) granted: Notify,
    pub(super) cancelled: Notify,
    is_sent: AtomicBool,
    /// What the request travels by, once it is sent, until its stream comes back.
    carrier: Mutex<Option<Stream>>,
}

impl Flow {
    /// Hands an item on, and waits until the reader can take more. Meanwhile the worker is held up by its socket.
    pub(super) async fn pass(&self, call: &Call, credit: Portion, item: Encoded) {
        self.ahead().add_item(item.payload_len());
        call.send_item(item);
        loop {
            let granted = self.granted.notified();
            if !self.ahead().reaches(credit) || call.is_abandoned() {
                return;
            }
            granted.await;
        }
    }

    pub(super) fn ahead(&self) -> MutexGuard<'_, Portion> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn carrier(&self) -> MutexGuard<'_, Option<Stream>> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn travels_by(&self, carrier: &Stream) {
        self.is_sent.store(true, Ordering::Relaxed);
        *self.carrier() = Some(carrier.clone());
    }

    /// Whether the worker may have heard of the request.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }
}
