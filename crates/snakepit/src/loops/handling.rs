//! From the start of a message to the end of its lease: what is handled, and what waits because nobody can begin it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::door::{Door, Outlook};
use super::engine::Work;
use super::extending::SlowMessages;
use super::failpoint::{Step, reach};
use super::hand::{Hand, Place, Started};
use super::settle::{Handled, Outcome, Rules, settle};
use super::trouble::Trouble;
use super::{Beats, Control, End, Failure, Heartbeat, Orders};
use crate::mailbox::{Backoff, Message};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, TraceContext, emit_with};

/// Between two tries of a message that nobody begins: a pool that is busy, or refuses calls for a while, is not asked all the time.
const TRIES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// By which policies know that a pool has none.
pub(super) const NO_WORKERS: &str = "NoWorkers";

/// What a run shares with its tasks.
pub(super) struct Shared {
    pub(super) control: Control,
    pub(super) hand: Arc<Hand>,
    pub(super) trouble: Trouble,
    pub(super) rules: Arc<Rules>,
    pub(super) door: Option<Door>,
    pub(super) leases: Leases,
    pub(super) slow: SlowMessages,
    /// How many messages the receives under way may bring.
    pub(super) asked: AtomicUsize,
    /// From this many in hand on, and in receives under way, there is no room worth a receive.
    pub(super) enough: AtomicUsize,
    /// Rings when there is.
    pub(super) room: Notify,
}

impl Shared {
    /// A message is settled, and this many are left in hand.
    fn note_settled(&self, left: usize) {
        if left + self.asked.load(Ordering::Relaxed) < self.enough.load(Ordering::Relaxed) {
            self.room.notify_one();
        }
    }

    /// Waits so long, and until the door is open. False if that is in vain: it will not be, or no messages are wanted.
    async fn waits_for_door(&self, pause: Duration) -> bool {
        let mut orders = self.control.orders();
        if timeout(pause, orders.wait_for(|orders| !orders.receives())).await.is_ok() {
            return false;
        }
        let Some(mut door) = self.door.clone() else { return true };
        tokio::select! {
            biased;
            _ = orders.wait_for(|orders| !orders.receives()) => false,
            opens = door.until_open() => opens,
        }
    }
}

/// How long leases last, when they were extended, and whether they are long enough.
pub(super) struct Leases {
    /// The begin of the last extension of all that was in hand.
    pub(super) extended: Heartbeat,
    pub(super) visibility: Duration,
    pub(super) shutdown: Duration,
    pub(super) longest: AtomicU64,
    pub(super) told: AtomicBool,
}

impl Leases {
    /// A handling took so long: warns, once, if a shutdown at its begin could outlast its lease.
    fn note(&self, control: &Control, took: Duration) {
        let took = took.as_millis() as u64;
        let longest = Duration::from_millis(self.longest.fetch_max(took, Ordering::Relaxed).max(took));
        let too_short = self.visibility <= self.shutdown.saturating_add(longest);
        if too_short && !self.told.swap(true, Ordering::Relaxed) {
            emit_with(Level::Warn, || Event::LoopLeaseShort {
                name: control.name().into(),
                visibility: self.visibility,
                shutdown: self.shutdown,
                longest,
            });
        }
    }
}

/// Handles a message, and then those that wait, one after another: the next one costs no task, and the engine no turn.
pub(super) async fn handle_all(work: Work, first: Started, shared: Arc<Shared>) {
    let mut orders = shared.control.orders();
    let mut next = Some(first);
    while let Some(Started { place, message, holding }) = next {
        handle(&work, &message, place, &holding.beats(), &shared, &mut orders).await;
        drop(holding);
        // What is to be given back is not started.
        next = if shared.control.wanted().receives() { shared.hand.start() } else { None };
    }
}

/// Handles one message, from its start to the end of its lease. One that is cancelled stays in hand.
async fn handle(
    work: &Work,
    message: &Message,
    place: Place,
    beats: &Beats,
    shared: &Shared,
    orders: &mut watch::Receiver<Orders>,
) {
    reach(Step::Handle);
    let began = Instant::now();
    let outcome = tokio::select! {
        biased;
        _ = orders.wait_for(|orders| orders.end == End::Cut) => return,
        outcome = try_until_begun(work, message, beats, shared) => outcome,
    };
    reach(Step::Handled);
    if matches!(outcome, Outcome::Failed(_) | Outcome::Unanswerable(_) | Outcome::Undecodable(_)) {
        shared.control.note_failed();
    }
    let handled = Handled { outcome, took: began.elapsed(), lease: shared.leases.visibility };
    settle(message, handled, &shared.rules, &shared.control, &shared.trouble).await;
    let (_, left) = shared.hand.remove(place);
    shared.note_settled(left);
}

/// Handles it; again if nobody has begun it, as soon as somebody may, unless the loop is to give back what is not started.
async fn try_until_begun(work: &Work, message: &Message, beats: &Beats, shared: &Shared) -> Outcome {
    let mut tries = 0;
    loop {
        let began = Instant::now();
        let outcome = match shared.door.as_ref().map_or(Outlook::Open, Door::outlook) {
            Outlook::Open => handle_once(work, message, beats, shared).await,
            Outlook::Shut(reason) | Outlook::Over(reason) => {
                Outcome::NotBegun { failure: Failure::new(NO_WORKERS, reason), again_in: Duration::ZERO }
            }
        };
        let Outcome::NotBegun { failure, again_in } = outcome else {
            shared.leases.note(&shared.control, began.elapsed());
            return outcome;
        };
        if shared.rules.policy.buries_at_once(failure.known_as(&shared.rules.policy)) {
            return Outcome::Failed(failure);
        }
        tries += 1;
        let pause = TRIES.pause(tries, Chance::draw().number()).max(again_in);
        if !shared.waits_for_door(pause).await {
            return Outcome::NotBegun { failure, again_in };
        }
    }
}

async fn handle_once(work: &Work, message: &Message, beats: &Beats, shared: &Shared) -> Outcome {
    // Not `name`: in JSON that is the span's own.
    let span = tracing::info_span!(
        target: "snakepit",
        "message",
        loop_name = shared.control.name(),
        message_id = %message.id,
    );
    // The work begins in here: what is told, and what panics, before its first wait is its own, too.
    let handling = async {
        match message.trace.as_deref().map(TraceContext::new) {
            Some(Ok(trace)) => trace.scope(async { work(message).await }).await,
            _ => work(message).await,
        }
    };
    let handling = shared.control.within(beats.clone().within(handling.instrument(span)));
    let handling = AssertUnwindSafe(handling).catch_unwind();
    handling.await.unwrap_or_else(|panic| Outcome::Failed(Failure::of_panic(&*panic)))
}
