//! A worker behind its standard streams.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::dialogue::{Dialogue, Worker};
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, Reason};
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::pool::AUTOPSY_PATIENCE;

/// See the module.
pub(super) struct StdioHandle {
    process: custody::Worker,
    dialogue: Arc<Dialogue>,
    introduction: Introduction,
}

impl StdioHandle {
    pub(super) fn new(process: custody::Worker, dialogue: Arc<Dialogue>, introduction: Introduction) -> Self {
        Self { process, dialogue, introduction }
    }
}

impl Handle for StdioHandle {
    fn process(&self) -> Option<&custody::Worker> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        self.dialogue.execute(call);
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        match stage {
            CancelStage::Ask => self.dialogue.cancel(call),
            // There is no exception to raise; what follows is TERM.
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

    fn broken(&self) -> BoxFuture<'_, String> {
        async { self.dialogue.closed().await.to_string() }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // Done on drop: whoever loses patience with a goodbye drops this, and the calls must not be forgotten.
            let _calls = GiveUp(self);
            if reason == Reason::Died {
                // What it had answered counts: it is read already, or lies in the pipe before its end.
                self.dialogue.hurry();
                let _ = tokio::time::timeout(AUTOPSY_PATIENCE / 4, self.dialogue.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.dialogue.drain();
                self.dialogue.closed().await;
                if self.dialogue.holds_calls() {
                    // It may still start what it has read.
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}

/// Gives up what a worker holds when it is dropped.
struct GiveUp<'a>(&'a StdioHandle);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let is_gone = self.0.process.try_wait().is_some();
        self.0.dialogue.give_up(if is_gone { Worker::Gone } else { Worker::MayLive });
    }
}
