//! The handle of a worker behind a socket.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use crate::OnDrop;
use crate::adapter::timeouts::LAST_ANSWERS;
use crate::adapter::{AtWork, CancelStage, Handle, Introduction, ProtocolFault, Reason, StartKnowledge};
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::pids::own_number;
use crate::transport::{BeatPipe, Connection, StackPipe, StackSignals, take_crash};
use snakepit_protocol::message::{ReadyMessage, Signals};

/// The handle of a worker behind a socket.
pub(super) struct SocketHandle {
    process: custody::WorkerProcess,
    connection: Arc<Connection>,
    stacks: StackPipe,
    /// `None` if the worker does not answer beats.
    beat: Option<BeatPipe>,
    signals: Signals,
    introduction: Introduction,
}

impl SocketHandle {
    pub(super) fn new(
        process: custody::WorkerProcess,
        connection: Arc<Connection>,
        stacks: StackPipe,
        beat: BeatPipe,
        ready: ReadyMessage,
    ) -> Self {
        let has = |feature: &str| ready.features.iter().any(|known| known == feature);
        let mut introduction = Introduction::new(ready.commands).language(ready.language).sdk(ready.sdk);
        introduction.batches = ready.batches;
        introduction.tells_what_it_started = has("slate");
        introduction.takes_many = true;
        // A signal that the process does not handle would end it, and the started process may be a wrapper script.
        let is_itself = own_number(process.pid().as_raw()) == Some(ready.pid);
        let signals = if is_itself { ready.signals } else { Signals::default() };
        let beat = has("beat").then_some(beat);
        Self { process, connection, stacks, beat, signals, introduction }
    }

    fn give_up(&self) {
        let is_gone = self.process.try_wait().is_some();
        let is_known = is_gone && self.introduction.tells_what_it_started;
        self.connection.give_up(if is_known { StartKnowledge::Known } else { StartKnowledge::Unknown });
    }
}

impl Handle for SocketHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        self.connection.execute(call);
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        match stage {
            CancelStage::Ask => self.connection.cancel(call, 1),
            CancelStage::Raise => {
                self.connection.cancel(call, 2);
                if let Some(signal) = self.signals.cancel {
                    let _ = self.process.signal_main(signal);
                }
            }
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.connection.grant(call, more);
    }

    fn stacks(&self) -> BoxFuture<'_, Option<String>> {
        async { self.stacks.ask(&self.process, StackSignals::of(self.signals)?, None).await }.boxed()
    }

    fn stacks_of(&self, call: CallId) -> BoxFuture<'_, Option<String>> {
        async move { self.stacks.ask(&self.process, StackSignals::of(self.signals)?, Some(call)).await }
            .boxed()
    }

    fn take_crash_stack(&self, printed: &mut Vec<String>) -> Option<String> {
        take_crash(printed)
    }

    fn ask_beat(&self) {
        if let Some(beat) = &self.beat {
            beat.ask();
        }
    }

    fn beats(&self) -> Option<u64> {
        self.beat.as_ref().and_then(|_| self.connection.beats())
    }

    fn at_work(&self) -> Vec<AtWork> {
        self.connection.at_work()
    }

    fn not_begun(&self) -> Vec<CallId> {
        if self.introduction.tells_what_it_started { self.connection.not_begun() } else { Vec::new() }
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.connection.closed().await }.boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        async move {
            // The pool drops this future after a time limit. The calls must be settled even then.
            let _calls = OnDrop(|| self.give_up());
            if reason == Reason::Died {
                // Answers that the worker gave before it died count. They were already read, or are in the socket.
                let _ = tokio::time::timeout(LAST_ANSWERS, self.connection.closed()).await;
            }
            if matches!(reason, Reason::Stopped | Reason::Replaced(_)) {
                self.connection.drain();
                self.connection.closed().await;
                if self.connection.holds_calls() {
                    // The worker may still start the calls that it has read.
                    self.process.exited().await;
                }
            }
        }
        .boxed()
    }
}
