//! Calls that ran out of time: the error that the caller gets, and how the call is given up.

use std::sync::Arc;
use std::time::Duration;

use super::cancel::abandon;
use crate::call::answer::CallState;
use crate::call::{CallError, CallId};
use crate::queue::PoolInner;
use crate::sharded::ShardRef;

/// A call that did not end in time.
pub(crate) enum LateCall {
    Queued(CallError),
    Running(TimedOutCall),
}

impl LateCall {
    pub(crate) async fn explain(self) -> CallError {
        match self {
            Self::Queued(error) => error,
            Self::Running(call) => call.explain().await,
        }
    }
}

/// Shown in place of the stack of a worker that is stopped and cannot report it.
const STOPPED: &str = "  (the worker is stopped by a signal or a debugger; SIGCONT lets it go on)";

/// A call that ran out of time at its worker. It asks the worker where it is stuck, then cancels the call.
pub(crate) struct TimedOutCall {
    pub(super) pool: ShardRef<PoolInner>,
    pub(super) call: CallId,
    pub(super) state: Arc<CallState>,
    pub(super) command: String,
    pub(super) after: Duration,
}

impl TimedOutCall {
    async fn explain(self) -> CallError {
        let worker = self.state.worker();
        let stack = match &worker {
            _ if self.state.has_ended() => None,
            Some(worker) if worker.is_halted() => Some(STOPPED.into()),
            Some(worker) => worker.handle.stacks_of(self.state.sent_as(self.call)).await,
            None => None,
        };
        let output = worker.map_or_else(Vec::new, |worker| {
            worker.output.catch_up();
            worker.output.tell(self.state.printed(), self.call, &self.command, "timed out");
            worker.printed_in(&self.state)
        });
        let degraded = self.pool.degraded();
        CallError::Timeout { command: self.command.clone(), after: self.after, stack, output, degraded }
        // Dropping `self` here gives the call up.
    }
}

impl Drop for TimedOutCall {
    fn drop(&mut self) {
        abandon(&self.pool, self.call, &self.state);
    }
}
