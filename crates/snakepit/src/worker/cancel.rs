//! Cancelling a call whose caller has gone away, in four stages, each after its own grace: a flag that the worker's code
//! can see, an exception in the call, TERM to the worker's group, KILL.
//!
//! The last two end the worker, so it takes no more calls first, and its other calls may finish.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::{Berth, Order};
use crate::adapter::{CancelStage, Reason};
use crate::call::ticket::{End, Ticket};
use crate::call::{CallError, CallId};
use crate::pool::{self, PoolEvent, Whereabouts};

/// Gives up a call: out of the queue without a trace, or step by step at its worker.
pub(crate) fn abandon(pool: &Arc<pool::Shared>, call: CallId, ticket: &Arc<Ticket>) {
    ticket.abandon();
    match pool.withdraw_or_locate(ticket) {
        Whereabouts::Withdrawn(call) => drop(call),
        Whereabouts::Nowhere => {}
        Whereabouts::Aboard(aboard) => {
            // The others go on; nobody but its caller is told.
            ticket.end(End::Failed(CallError::Cancelled));
            if aboard.leave() {
                abandon(pool, aboard.van, &aboard.ticket);
            }
        }
        Whereabouts::With(_) if ticket.has_ended() => {}
        Whereabouts::With(berth) => {
            // Asked here, not in the task: whoever drops a call may be the last thing its runtime does.
            berth.handle.cancel(call, CancelStage::Ask);
            let ticket = Arc::clone(ticket);
            pool.runtime.spawn(escalate(berth, call, ticket));
        }
    }
}

async fn escalate(berth: Arc<Berth>, call: CallId, ticket: Arc<Ticket>) {
    let grace = berth.pool.config().cancel_grace;
    if ended_within(&ticket, grace.ask).await {
        return;
    }
    berth.handle.cancel(call, CancelStage::Raise);
    if ended_within(&ticket, grace.raise).await {
        return;
    }
    berth.pool.announce(PoolEvent::WorkerIgnoresCancel { worker: berth.id.to_string(), call });
    berth.order(Order::Retire(Reason::Stopped));
    berth.only_stubborn_ones_left(call, &ticket).await;
    if !ticket.has_ended() {
        berth.order(Order::End(Reason::Stubborn(call)));
    }
}

async fn ended_within(ticket: &Ticket, grace: Duration) -> bool {
    tokio::time::timeout(grace, poll_fn(|context| ticket.poll_ended(context))).await.is_ok()
}
