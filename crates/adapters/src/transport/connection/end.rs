//! The end of a connection, and what is known of its calls until then.

use super::{AtWork, CallId, CallSettlement, Connection, HostMessage, ProtocolFault, StartKnowledge};

impl Connection {
    /// Stops sending calls, and records the reason.
    pub(super) fn close(&self, fault: ProtocolFault) {
        self.state().calls.close();
        self.closed.close(fault);
    }

    /// Waits until the connection can no longer be used. Returns the reason.
    pub(crate) async fn closed(&self) -> ProtocolFault {
        self.closed.reason().await
    }

    /// Asks the worker to finish and exit. The worker gets no more calls.
    pub(crate) fn drain(&self) {
        let mut state = self.state();
        state.calls.leave();
        HostMessage::Drain.write(&mut state.outbox, 0);
        self.see_to_outbox(state, true);
    }

    /// Reports whether the worker has unanswered calls.
    pub(crate) fn holds_calls(&self) -> bool {
        !self.state().calls.is_empty()
    }

    /// Returns the calls that the worker is most likely running, in the order in which they were sent.
    pub(crate) fn at_work(&self) -> Vec<AtWork> {
        self.state().calls.at_work()
    }

    /// Returns how often the worker has answered a request for a beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        self.slate.beats()
    }

    /// Returns the calls that the worker has not started yet, if it keeps a slate.
    pub(crate) fn not_begun(&self) -> Vec<CallId> {
        let mut state = self.state();
        let Ok(started) = self.slate.started() else { return Vec::new() };
        state.calls.started(started.call);
        state.calls.not_begun(StartKnowledge::Known)
    }

    /// Gives up all calls. Calls that were certainly not started go back to the pool; the others are lost. `starts`
    /// says whether the slate names all calls that were started and will not change any more.
    pub(crate) fn give_up(&self, starts: StartKnowledge) {
        let started = match starts {
            StartKnowledge::Known => self.slate.started().ok(),
            StartKnowledge::Unknown => None,
        };
        let mut state = self.state();
        state.tools.end_all();
        // A call that goes to another worker must never be written here.
        state.outbox.clear();
        if let Some(started) = started {
            state.calls.started(started.call);
        }
        let ended =
            state.calls.end(if started.is_some() { StartKnowledge::Known } else { StartKnowledge::Unknown });
        drop(state);
        for (at_end, held) in ended {
            match at_end {
                CallSettlement::GiveBack | CallSettlement::Conclude => held.settle(at_end),
                CallSettlement::Lose => self.slate.lose(held, started, self.concurrency),
            }
        }
    }
}
