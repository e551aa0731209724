//! Ends leases. While the mailbox fails, the operation is retried until it succeeds, or until the loop's deadline has passed.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::HandlingOutcome;
use super::handling_outcome::REPLY_FAILED;
use crate::failpoint::{LoopFailpoint, reach};
use crate::mailbox::{
    BackendErrorKind, Backoff, DeadReason, Mailbox, MailboxError, Message, NackOptions, Pending, Receipt,
    SendOptions,
};
use crate::receive::RunContext;
use crate::telemetry::{Event, Level, emit_with};
use crate::{Control, EndOrder, HandlerFailure};

/// How long a reply is retried that the requester's mailbox rejects because it is closed. The mailbox may be opened
/// again.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const REPLY_PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The error of a message whose handler was cancelled.
pub(crate) const CUT_OFF: &str = "Cancelled: the loop was stopped while the message was being handled";

/// How the lease of a message ends.
#[derive(Debug)]
pub(super) enum Settlement {
    Ack,
    /// Boxed, because most messages are only acknowledged.
    Reply(Vec<u8>, Box<SendOptions>),
    Again(NackOptions),
    Release,
    Bury(DeadReason),
}

impl Settlement {
    /// Returns what happens to the message, in one word.
    fn word(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Reply(..) => "reply",
            Self::Again(_) => "again",
            Self::Release => "release",
            Self::Bury(_) => "bury",
        }
    }

    /// Returns the failpoints before and after the settlement.
    fn failpoints(&self) -> (LoopFailpoint, LoopFailpoint) {
        use LoopFailpoint as At;
        match self {
            Self::Ack => (At::Ack, At::Acked),
            Self::Reply(..) => (At::Reply, At::Replied),
            Self::Again(_) | Self::Release => (At::Nack, At::Nacked),
            Self::Bury(_) => (At::Bury, At::Buried),
        }
    }

    async fn apply(&self, message: &Message) -> Result<(), MailboxError> {
        let (before, after) = self.failpoints();
        reach(before);
        let applied = match self {
            Self::Ack => message.ack().await,
            Self::Reply(body, options) => match &message.receipt {
                Some(receipt) => {
                    message.mailbox.reply(receipt, body.clone(), (**options).clone()).await.map(|_| ())
                }
                None => Err(MailboxError::ReceiptExpired),
            },
            Self::Again(options) => message.nack(options.clone()).await,
            Self::Release => message.release().await,
            Self::Bury(reason) => message.bury(reason.clone()).await,
        };
        reach(after);
        applied
    }
}

/// Writes the policy's delivery limit, if it has one, to the mailbox's settings. From then on it applies to all users
/// of the mailbox, for failures and for crashes. If the mailbox fails, retries until it works or the loop must end.
pub(crate) async fn write_delivery_limit(
    mailbox: &dyn Mailbox,
    run: &RunContext,
) -> Result<(), MailboxError> {
    if run.rules.policy.max_deliveries.is_none() {
        return Ok(());
    }
    let mut orders = run.control.orders();
    while let Err(error) = mailbox.configure(run.rules.policy.settings_change()).await {
        if !error.is_passing() {
            return Err(error);
        }
        let pause = run.availability.mailbox_failed(&error);
        if timeout(pause, orders.wait_for(|orders| orders.end != EndOrder::Not)).await.is_ok() {
            return Ok(());
        }
    }
    run.availability.mailbox_works();
    Ok(())
}

/// Ends the lease of a message according to the rules.
///
/// A reply that could not be sent does not make the handler run again. The reply is kept here and retried for as long
/// as the lease and [`REPLY_TIMEOUT`] allow. Then the message is given up.
pub(crate) async fn settle(message: &Message, outcome: HandlingOutcome, took: Duration, run: &RunContext) {
    let error = outcome.failure().map(HandlerFailure::to_string);
    let mut settlement = run.rules.settlement(message, outcome);
    report_attempt(&run.control, message, error, took, &settlement);
    let mut refusals = ReplyRefusals::default();
    loop {
        let error = match settlement.apply(message).await {
            Ok(()) => return run.availability.mailbox_works(),
            Err(error) => error,
        };
        match error {
            MailboxError::ReceiptExpired => return report_lease_lost(&run.control, message),
            error if error.is_passing() => {
                let pause = run.availability.mailbox_failed(&error);
                if !run.pause(pause).await {
                    return;
                }
            }
            error if matches!(settlement, Settlement::Reply(..)) => {
                let is_too_big =
                    matches!(error, MailboxError::Backend { kind: BackendErrorKind::TooBig, .. });
                let goes_on = match refusals.pause(REPLY_TIMEOUT.min(run.leases.visibility)) {
                    Some(pause) if !is_too_big => run.pause(pause).await,
                    _ => false,
                };
                if !goes_on {
                    let error = HandlerFailure::new(REPLY_FAILED, error.to_string()).to_string();
                    settlement = Settlement::Bury(DeadReason::Failed { error: error.clone() });
                    report_attempt(&run.control, message, Some(error), took, &settlement);
                }
            }
            error => {
                // Nothing more can be done for this message, so its lease runs out.
                run.availability.mailbox_failed(&error);
                return;
            }
        }
    }
}

/// The number of times that the requester's mailbox has rejected a reply, and when it first did.
#[derive(Default)]
struct ReplyRefusals {
    times: u32,
    since: Option<Instant>,
}

impl ReplyRefusals {
    /// Returns how long to wait before the next attempt, or `None` if the time is over.
    fn pause(&mut self, limit: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.times += 1;
        (since.elapsed() < limit).then(|| REPLY_PAUSES.pause(self.times, fastrand::f64()))
    }
}

/// Emits an event for an attempt, with its error if it failed. A message that no worker has begun was not attempted.
fn report_attempt(
    control: &Control,
    message: &Message,
    error: Option<String>,
    took: Duration,
    settlement: &Settlement,
) {
    let (name, message_id) = (|| control.name().into(), || message.id.to_string().into());
    let delivery = message.delivery_count;
    match (error, settlement) {
        (None, Settlement::Release) => {}
        (None, _) => emit_with(Level::Debug, || Event::LoopAttemptDone {
            name: name(),
            message_id: message_id(),
            delivery,
            took,
        }),
        (Some(error), _) => emit_with(Level::Warn, || Event::LoopAttemptFailed {
            name: name(),
            message_id: message_id(),
            delivery,
            of: message.max_deliveries,
            took,
            error: error.as_str().into(),
            then: settlement.word(),
        }),
    }
}

/// Emits an event for a lost lease. Another receiver may have the message.
pub(crate) fn report_lease_lost(control: &Control, message: &Message) {
    emit_with(Level::Warn, || Event::LoopLeaseLost {
        name: control.name().into(),
        message_id: message.id.to_string().into(),
    });
}

/// Gives back messages that no handler has begun, in one batch, to be received again at once. Their delivery is not
/// counted. The mailbox ignores messages whose leases have expired.
pub(crate) async fn release(messages: &[Message], run: &RunContext) {
    let receipts = receipts(messages);
    give_back(messages, |mailbox| mailbox.release(&receipts), run).await;
}

/// Gives back messages whose handlers were cancelled, in one batch.
pub(crate) async fn nack(messages: &[Message], run: &RunContext) {
    let receipts = receipts(messages);
    give_back(messages, |mailbox| mailbox.nack_all(&receipts, NackOptions::new().error(CUT_OFF)), run).await;
}

pub(crate) fn receipts(messages: &[Message]) -> Vec<Receipt> {
    messages.iter().filter_map(|message| message.receipt.clone()).collect()
}

async fn give_back<'a>(
    messages: &'a [Message],
    ask: impl Fn(&'a dyn Mailbox) -> Pending<'a, usize>,
    run: &RunContext,
) {
    let Some(first) = messages.first() else { return };
    reach(LoopFailpoint::GiveBack);
    while let Err(error) = ask(&*first.mailbox).await {
        let pause = run.availability.mailbox_failed(&error);
        if !error.is_passing() || !run.pause(pause).await {
            return;
        }
    }
    reach(LoopFailpoint::GivenBack);
}
