//! Whether a worker can still be reached, and the reason if not. Set once and seen by everyone who waits.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Closed(watch::Sender<Option<Arc<str>>>);

impl Closed {
    /// Marks the worker as unreachable. Only the first reason counts.
    pub(crate) fn close(&self, reason: &str) {
        self.0.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert_with(|| reason.into());
            first
        });
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until the worker is unreachable. Returns the reason.
    pub(crate) async fn reason(&self) -> Arc<str> {
        let mut closed = self.0.subscribe();
        let reason = closed.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }
}
