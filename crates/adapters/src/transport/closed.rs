//! Whether a worker can still be reached, and the reason if not. Set once and seen by everyone who waits.

use tokio::sync::watch;

use crate::adapter::ProtocolFault;

#[derive(Debug, Default)]
pub(crate) struct Closed(watch::Sender<Option<ProtocolFault>>);

impl Closed {
    /// Marks the worker as unreachable. Only the first reason counts.
    pub(crate) fn close(&self, fault: ProtocolFault) {
        self.0.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert(fault);
            first
        });
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until the worker is unreachable. Returns the reason.
    pub(crate) async fn reason(&self) -> ProtocolFault {
        let mut closed = self.0.subscribe();
        let reason = closed.wait_for(Option::is_some).await;
        match reason.ok().and_then(|reason| reason.clone()) {
            Some(fault) => fault,
            // The sender belongs to `self`, so it is not dropped before.
            None => std::future::pending().await,
        }
    }
}
