//! A task that handles one message after another, each from its start to the end of its lease.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::Instant;
use tracing::Instrument;

use crate::failpoint::{LoopFailpoint, reach};
use crate::lease::StartedMessage;
use crate::mailbox::{Backoff, Message};
use crate::receive::{MessageHandler, PoolReadiness, RunContext};
use crate::settle::{HandlingOutcome, settle};
use crate::telemetry::TraceContext;
use crate::{Beats, EndOrder, HandlerFailure, LoopOrders};

/// The pauses between two attempts for a message that no worker has begun, so that a busy pool is not asked all the
/// time.
const TRY_PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The name under which policies know the failure of a pool without workers.
pub(crate) const NO_WORKERS: &str = "NoWorkers";

/// Handles a message, and then the waiting messages, so that the next message costs neither a task nor an iteration of
/// the loop.
pub(crate) async fn handle_all(work: MessageHandler, first: StartedMessage, run: Arc<RunContext>) {
    let mut orders = run.control.orders();
    let mut next = Some(first);
    while let Some(started) = next {
        match handle(&work, &started, &run, &mut orders).await {
            HandlingStart::Begun => drop(started),
            HandlingStart::NotBegun => started.holding.end_without_handling(),
        }
        // Messages that must be given back are not started.
        next = if run.control.wanted().receives() { run.leased.start() } else { None };
    }
}

/// Whether a handler, or a worker, has begun a message.
enum HandlingStart {
    Begun,
    NotBegun,
}

impl HandlingStart {
    fn of(outcome: &HandlingOutcome) -> Self {
        match outcome {
            HandlingOutcome::NotBegun { .. } => Self::NotBegun,
            HandlingOutcome::Done(_)
            | HandlingOutcome::Failed(_)
            | HandlingOutcome::Unanswerable(_)
            | HandlingOutcome::Undecodable(_) => Self::Begun,
        }
    }
}

/// Handles one message. A cancelled message keeps its lease, and the loop gives it back.
async fn handle(
    work: &MessageHandler,
    started: &StartedMessage,
    run: &RunContext,
    orders: &mut watch::Receiver<LoopOrders>,
) -> HandlingStart {
    let (message, beats) = (&started.message, started.holding.beats());
    reach(LoopFailpoint::Handle);
    let began = Instant::now();
    let mut handling = pin!(try_until_begun(work, message, &beats, run));
    let outcome = tokio::select! {
        biased;
        _ = orders.wait_for(|orders| orders.end == EndOrder::Cut) => {
            return begun_before_cut(handling, started, run);
        }
        outcome = &mut handling => outcome,
    };
    reach(LoopFailpoint::Handled);
    if outcome.failure().is_some() {
        run.control.note_failed();
    }
    let start = HandlingStart::of(&outcome);
    settle(message, outcome, began.elapsed(), run).await;
    let (_, left) = run.leased.remove(started.id);
    run.note_settled(left);
    start
}

/// Finds out whether a worker has begun a message whose handling is cancelled. If not, the message is given back without
/// a counted delivery.
fn begun_before_cut(
    handling: Pin<&mut impl Future<Output = HandlingOutcome>>,
    started: &StartedMessage,
    run: &RunContext,
) -> HandlingStart {
    // A handler in the host has begun its message, and is not continued.
    if run.submitted.is_none() {
        return HandlingStart::Begun;
    }
    run.withdraw_queued();
    // A handling that waits for a worker, or whose call was withdrawn, ends now.
    let Some(HandlingOutcome::NotBegun { .. }) = unconstrained(handling).now_or_never() else {
        return HandlingStart::Begun;
    };
    if let Some(receipt) = &started.message.receipt {
        run.leased.note_not_begun(receipt.clone());
    }
    HandlingStart::NotBegun
}

/// Handles the message. If no worker has begun it, tries again as soon as a worker may, until the loop must give back
/// messages that were not started.
async fn try_until_begun(
    work: &MessageHandler,
    message: &Message,
    beats: &Beats,
    run: &RunContext,
) -> HandlingOutcome {
    let mut tries = 0;
    loop {
        let began = Instant::now();
        let outcome = match run.pool_readiness() {
            PoolReadiness::Ready => handle_once(work, message, beats, run).await,
            PoolReadiness::NoWorker(reason) | PoolReadiness::Stopped(reason) => HandlingOutcome::NotBegun {
                failure: HandlerFailure::new(NO_WORKERS, reason),
                again_in: Duration::ZERO,
            },
        };
        let HandlingOutcome::NotBegun { failure, again_in } = outcome else {
            run.leases.note_handling(&run.control, began.elapsed());
            return outcome;
        };
        if run.rules.policy.buries_at_once(failure.known_as(&run.rules.policy)) {
            return HandlingOutcome::Failed(failure);
        }
        tries += 1;
        let pause = TRY_PAUSES.pause(tries, fastrand::f64()).max(again_in);
        if !run.until_pool_is_ready(pause).await {
            return HandlingOutcome::NotBegun { failure, again_in };
        }
        run.leased.note_begun(message);
    }
}

async fn handle_once(
    work: &MessageHandler,
    message: &Message,
    beats: &Beats,
    run: &RunContext,
) -> HandlingOutcome {
    // The field is not called `name`, because in JSON that is the name of the span.
    let span = tracing::info_span!(
        target: "snakepit",
        "message",
        loop_name = run.control.name(),
        message_id = %message.id,
    );
    // The work begins inside, so that its events and panics before its first await also belong to the span.
    let handling = async {
        match message.trace.as_deref().map(TraceContext::new) {
            Some(Ok(trace)) => trace.scope(async { work(message).await }).await,
            _ => work(message).await,
        }
    };
    let handling = run.control.within(beats.clone().within(handling.instrument(span)));
    let handling = AssertUnwindSafe(handling).catch_unwind();
    handling.await.unwrap_or_else(|panic| HandlingOutcome::Failed(HandlerFailure::of_panic(&*panic)))
}
