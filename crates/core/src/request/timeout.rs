//! A call whose time is over: what its caller is told, and how it is given up.

use std::sync::Arc;
use std::time::Duration;

use crate::call::answer::CallState;
use crate::call::{CallError, CallId};
use crate::pool;
use crate::worker::abandon;

/// A call that came to no end in time.
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

/// What is said in the place of the stack of a worker that could not tell it.
const STOPPED: &str = "  (the worker is stopped by a signal or a debugger; SIGCONT lets it go on)";

/// A call whose time is up at its worker: asks where it is stuck, then cancels it.
pub(crate) struct TimedOutCall {
    pub(super) pool: Arc<pool::PoolInner>,
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
        // Dropped here, it is given up.
    }
}

impl Drop for TimedOutCall {
    fn drop(&mut self) {
        abandon(&self.pool, self.call, &self.state);
    }
}
