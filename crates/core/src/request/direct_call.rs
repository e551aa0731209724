//! Calls of the engine itself to a worker that does not serve yet. They bypass the queue, because the worker has no
//! other calls.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::adapter::Handle;
use crate::call::PoolCommand;
use crate::call::QueueKey;
use crate::call::answer::CallState;
use crate::call::progress::CallEnd;
use crate::call::{Call, CallError, CallId, Input};
use crate::sharded::ShardRef;
use crate::value::Encoded;
use crate::worker::process_ended;
use snakepit_policy::time::after;

/// Calls a command of a worker. Returns [`CallError::Cancelled`] if the worker goes away without an answer.
pub(crate) async fn ask(
    handle: &Arc<dyn Handle>,
    command: &str,
    arguments: Encoded,
    timeout: Duration,
) -> Result<Encoded, CallError> {
    let id = CallId::next();
    let call_state = Arc::new(CallState::default());
    let deadline = after(Instant::now(), timeout);
    let command_called = ShardRef::from(Arc::new(PoolCommand::new(command)));
    let key = QueueKey::new(0, Instant::now(), id.0);
    let mut call = Call::new(id, command_called, Input::One(arguments), Arc::clone(&call_state), key);
    call.deadline = Some(deadline);
    Arc::clone(handle).execute(call);
    let gone = async {
        tokio::select! {
            () = process_ended(handle.process()) => {}
            _ = handle.broken() => {}
        }
    };
    let end = tokio::select! {
        biased;
        end = tokio::time::timeout_at(deadline, poll_fn(|context| call_state.poll_end(context))) => end,
        () = gone => return Err(CallError::Cancelled),
    };
    match end {
        Ok(CallEnd::Value(value)) => Ok(value),
        // A call that is dropped without a place at a worker reports that its pool has stopped.
        Ok(CallEnd::Failed(CallError::Stopped) | CallEnd::Lost { .. }) => Err(CallError::Cancelled),
        Ok(CallEnd::Failed(error)) => Err(error),
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
