//! Cancels a call whose caller has gone away, in four stages, each after its own grace: a flag that the worker's code
//! can see, an exception in the call, TERM to the worker's group, KILL.
//!
//! The last two stages end the worker. So the worker stops taking calls first, and its other calls may finish.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{CancelStage, Reason};
use crate::call::answer::CallState;
use crate::call::progress::CallEnd;
use crate::call::{CallError, CallId};
use crate::queue::{Location, PoolInner};
use crate::telemetry::Event;
use crate::worker::{Worker, WorkerOrder};

/// Gives up a call: removes it from the queue, or cancels it in stages at its worker.
pub(crate) fn abandon(pool: &Arc<PoolInner>, call: CallId, call_state: &Arc<CallState>) {
    call_state.abandon();
    match pool.withdraw_or_locate(call_state) {
        Location::Withdrawn(call) => drop(call),
        Location::Nowhere => {}
        Location::InBatch(batched) => {
            // The other members go on, so the worker is not asked unless this was the last member.
            call_state.end(CallEnd::Failed(CallError::Cancelled));
            if batched.leave() {
                abandon(pool, batched.carrier, &batched.state);
            }
        }
        Location::With(_) if call_state.has_ended() => {}
        Location::With(worker) => {
            // Asked here and not in the task: dropping a call may be the last thing that the caller's runtime does.
            worker.handle.cancel(call, CancelStage::Ask);
            let call_state = Arc::clone(call_state);
            pool.runtime.spawn(escalate(Arc::clone(pool), worker, call, call_state));
        }
    }
}

async fn escalate(pool: Arc<PoolInner>, worker: Arc<Worker>, call: CallId, call_state: Arc<CallState>) {
    let grace = pool.config().cancel_grace;
    if ended_within(&call_state, grace.ask).await {
        return;
    }
    worker.handle.cancel(call, CancelStage::Raise);
    if ended_within(&call_state, grace.raise).await {
        return;
    }
    pool.announce(|pool| Event::WorkerIgnoresCancel {
        pool,
        worker: worker.id.as_str().into(),
        call: call.get(),
    });
    worker.order(WorkerOrder::Retire(Reason::Stopped));
    worker.only_uncancellable_calls_left(call, &call_state).await;
    if !call_state.has_ended() {
        worker.order(WorkerOrder::End(Reason::CancelIgnored(call)));
    }
}

async fn ended_within(call_state: &CallState, grace: Duration) -> bool {
    tokio::time::timeout(grace, poll_fn(|context| call_state.poll_ended(context))).await.is_ok()
}
