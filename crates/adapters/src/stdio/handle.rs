//! The handle of a stdio worker.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::connection::StdioConnection;
use crate::OnDrop;
use crate::adapter::timeouts::LAST_ANSWERS;
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, ProtocolFault, Reason, StartKnowledge};
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::value::Encoded;

/// The handle of a stdio worker.
pub(super) struct StdioHandle {
    process: custody::WorkerProcess,
    connection: Arc<StdioConnection>,
    introduction: Introduction,
}

impl StdioHandle {
    pub(super) fn new(
        process: custody::WorkerProcess,
        connection: Arc<StdioConnection>,
        introduction: Introduction,
    ) -> Self {
        Self { process, connection, introduction }
    }
}

impl Handle for StdioHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        if self.introduction.ignores(call.command()) {
            return call.finish(Ok(Encoded::nil()));
        }
        self.connection.execute(call);
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        match stage {
            CancelStage::Ask => self.connection.cancel(call.get()),
            // The worker has no exception to raise. TERM follows.
            CancelStage::Raise => {}
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.connection.state().calls.grant(call.get(), more);
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.connection.state().calls.at_work()
    }

    fn not_begun(&self) -> Vec<CallId> {
        self.connection.not_begun()
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.connection.closed().await }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // The pool drops this future when its patience runs out, and the calls must be settled nevertheless.
            let _calls = OnDrop(|| {
                let is_gone = self.process.try_wait().is_some();
                self.connection.give_up(if is_gone {
                    StartKnowledge::Known
                } else {
                    StartKnowledge::Unknown
                });
            });
            if reason == Reason::Died {
                // Answers that the worker gave before it died count. They were already read, or are in the pipe.
                self.connection.hurry();
                let _ = tokio::time::timeout(LAST_ANSWERS, self.connection.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.connection.drain();
                self.connection.closed().await;
                if !self.connection.state().calls.is_empty() {
                    // The worker may still start the calls that it has read.
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}
