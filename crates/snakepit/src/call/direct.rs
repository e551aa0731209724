//! A call of the engine's own to a worker that does not serve yet: past the queue, with nobody else in the way.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ticket::{End, Ticket};
use super::waiting::after;
use super::{Call, CallError, Input};
use crate::adapter::Handle;
use crate::pool::{self, Command, QueueKey};
use crate::value::Encoded;
use crate::worker::process_ended;

/// Calls a command of a worker. A worker that goes away without an answer is told as [`CallError::Cancelled`].
pub(crate) async fn ask(
    handle: &Arc<dyn Handle>,
    command: &str,
    arguments: Encoded,
    timeout: Duration,
) -> Result<Encoded, CallError> {
    let id = pool::next_call_id();
    let ticket = Arc::new(Ticket::default());
    let deadline = after(Instant::now(), timeout);
    let call = Call {
        id,
        command: Arc::new(Command::new(command)),
        input: Input::One(arguments),
        deadline: Some(deadline),
        extras: None,
        ticket: Arc::clone(&ticket),
        key: QueueKey::new(0, Instant::now(), id.0),
        slot: None,
        queued_at: None,
        returns: 0,
        is_over: false,
        alone: false,
        batch: None,
    };
    Arc::clone(handle).execute(call);
    let gone = async {
        tokio::select! {
            () = process_ended(handle.process()) => {}
            _ = handle.broken() => {}
        }
    };
    let end = tokio::select! {
        biased;
        end = tokio::time::timeout_at(deadline, poll_fn(|context| ticket.poll_end(context))) => end,
        () = gone => return Err(CallError::Cancelled),
    };
    match end {
        Ok(End::Value(value)) => Ok(value),
        // A call that is dropped without a place at a worker says that its pool has stopped.
        Ok(End::Failed(CallError::Stopped) | End::Lost { .. }) => Err(CallError::Cancelled),
        Ok(End::Failed(error)) => Err(error),
        Err(_) => {
            let stack = handle.stacks().await;
            Err(CallError::Timeout {
                command: command.into(),
                after: timeout,
                stack,
                output: Vec::new(),
                degraded: None,
            })
        }
    }
}
