//! A call whose time is over: what its caller is told, and how it is given up.

use std::sync::Arc;
use std::time::Duration;

use super::ticket::Ticket;
use super::{CallError, CallId};
use crate::pool;
use crate::worker::abandon;

/// A call that came to no end in time.
pub(crate) enum Late {
    Queued(CallError),
    Running(TimeIsUp),
}

impl Late {
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
pub(crate) struct TimeIsUp {
    pub(super) pool: Arc<pool::Shared>,
    pub(super) call: CallId,
    pub(super) ticket: Arc<Ticket>,
    pub(super) command: String,
    pub(super) after: Duration,
}

impl TimeIsUp {
    async fn explain(self) -> CallError {
        let berth = self.ticket.berth();
        let stack = match &berth {
            _ if self.ticket.has_ended() => None,
            Some(berth) if berth.is_halted() => Some(STOPPED.into()),
            Some(berth) => berth.handle.stacks_of(self.ticket.sent_as(self.call)).await,
            None => None,
        };
        let output = berth.map_or_else(Vec::new, |berth| {
            berth.output.catch_up();
            berth.output.tell(self.ticket.printed(), self.call, &self.command, "timed out");
            berth.printed_in(&self.ticket)
        });
        let degraded = self.pool.degraded();
        CallError::Timeout { command: self.command.clone(), after: self.after, stack, output, degraded }
        // Dropped here, it is given up.
    }
}

impl Drop for TimeIsUp {
    fn drop(&mut self) {
        abandon(&self.pool, self.call, &self.ticket);
    }
}
