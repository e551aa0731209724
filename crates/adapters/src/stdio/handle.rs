//! The handle of a stdio worker.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::dialogue::Dialogue;
use crate::OnDrop;
use crate::adapter::patience::LAST_ANSWERS;
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, ProtocolFault, Reason, StartKnowledge};
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::value::Encoded;

/// The handle of a stdio worker.
pub(super) struct StdioHandle {
    process: custody::WorkerProcess,
    dialogue: Arc<Dialogue>,
    introduction: Introduction,
}

impl StdioHandle {
    pub(super) fn new(
        process: custody::WorkerProcess,
        dialogue: Arc<Dialogue>,
        introduction: Introduction,
    ) -> Self {
        Self { process, dialogue, introduction }
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
        self.dialogue.execute(call);
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        match stage {
            CancelStage::Ask => self.dialogue.cancel(call.get()),
            // The worker has no exception to raise. TERM follows.
            CancelStage::Raise => {}
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.dialogue.grant(call, more);
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.dialogue.at_work()
    }

    fn not_begun(&self) -> Vec<CallId> {
        self.dialogue.not_begun()
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.dialogue.closed().await }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // The pool drops this future when its patience runs out, and the calls must be settled nevertheless.
            let _calls = OnDrop(|| {
                let is_gone = self.process.try_wait().is_some();
                self.dialogue.give_up(if is_gone { StartKnowledge::Known } else { StartKnowledge::Unknown });
            });
            if reason == Reason::Died {
                // Answers that the worker gave before it died count. They were already read, or are in the pipe.
                self.dialogue.hurry();
                let _ = tokio::time::timeout(LAST_ANSWERS, self.dialogue.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.dialogue.drain();
                self.dialogue.closed().await;
                if self.dialogue.holds_calls() {
                    // The worker may still start the calls that it has read.
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}
