//! Reply, ack, nack or bury: what becomes of a message that was handled.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::failpoint::{self, reach};
use super::trouble::Trouble;
use super::{Control, End, Failure, Orders};
pub use crate::mailbox::ERROR_ATTRIBUTE;
use crate::mailbox::{
    AfterFailure, Backoff, DeadLetterPolicy, DeadReason, Mailbox, MailboxError, Message, Nack, Pending,
    Receipt, Send,
};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, emit_with};

/// How long a reply is tried again that the requester's mailbox refuses, since it is closed: it may be opened again.
const REPLY_PATIENCE: Duration = Duration::from_secs(10);
const REPLY_PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The name of the error of a reply that cannot be written, or that nobody takes.
const REPLY_FAILED: &str = "ReplyFailed";

/// The name of the error of a body that is not what the handler takes.
const UNDECODABLE: &str = "Undecodable";

/// The error of a message whose handler was cancelled.
pub(super) const CUT_OFF: &str = "Cancelled: the loop was stopped while the message was being handled";

/// What handling a message came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, and this is the answer, if one is given.
    Done(Option<Vec<u8>>),
    /// It failed.
    Failed(Failure),
    /// It is done, but its answer cannot be written. The next try would bring the same.
    Unanswerable(String),
    /// Its body is not what the handler takes.
    Undecodable(String),
    /// Nobody has begun it, for want of somebody who could, and that is not its fault.
    NotBegun {
        /// Why not.
        failure: Failure,
        /// Before this has passed it would be in vain to try again.
        again_in: Duration,
    },
}

/// How handling a message went.
#[derive(Debug)]
pub(super) struct Handled {
    pub(super) outcome: Outcome,
    /// How long it took.
    pub(super) took: Duration,
    /// For how long a lease of this loop lasts.
    pub(super) lease: Duration,
}

/// What is done with a message that the policy gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUp {
    /// It is moved to the dead letters.
    #[default]
    Bury,
    /// Whoever waits for a reply gets the error, with the attribute [`ERROR_ATTRIBUTE`], also that of a body that cannot be read; if
    /// nobody does, it is buried.
    Reply,
}

/// Whether handlers' values are sent to those who wait for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replies {
    /// If the message names a mailbox.
    #[default]
    WhenAsked,
    /// Not at all.
    Never,
}

/// What decides about messages that were handled.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) policy: DeadLetterPolicy,
    pub(super) give_up: GiveUp,
    pub(super) replies: Replies,
}

/// One step that ends a lease.
#[derive(Debug)]
enum Step {
    Ack,
    Reply(Vec<u8>, Send),
    Again(Nack),
    Release,
    Bury(DeadReason),
}

impl Step {
    /// What becomes of the message, in one word.
    fn word(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Reply(..) => "reply",
            Self::Again(_) => "again",
            Self::Release => "release",
            Self::Bury(_) => "bury",
        }
    }

    /// Why the message is given up, if it is.
    fn error(&self) -> Option<String> {
        match self {
            Self::Bury(reason) => reason.error().map(str::to_owned),
            Self::Ack | Self::Reply(..) | Self::Again(_) | Self::Release => None,
        }
    }

    /// Before it, and after it.
    fn failpoints(&self) -> (failpoint::Step, failpoint::Step) {
        use failpoint::Step as At;
        match self {
            Self::Ack => (At::Ack, At::Acked),
            Self::Reply(..) => (At::Reply, At::Replied),
            Self::Again(_) | Self::Release => (At::Nack, At::Nacked),
            Self::Bury(_) => (At::Bury, At::Buried),
        }
    }
}

/// Writes the policy's limit of deliveries to the mailbox, if it has one: from then on it holds for all who use the mailbox, for
/// failures and for crashes. A backend that fails is asked again until it works, or the loop is to end.
pub(super) async fn set_limit(
    mailbox: &dyn Mailbox,
    rules: &Rules,
    control: &Control,
    trouble: &Trouble,
) -> Result<(), MailboxError> {
    if rules.policy.max_deliveries.is_none() {
        return Ok(());
    }
    let mut orders = control.orders();
    while let Err(error) = mailbox.configure(rules.policy.settings_change()).await {
        if !error.is_passing() {
            return Err(error);
        }
        let pause = trouble.note(&error);
        if timeout(pause, orders.wait_for(|orders| orders.end != End::Not)).await.is_ok() {
            return Ok(());
        }
    }
    trouble.is_over();
    Ok(())
}

/// Ends the lease of a message as the rules say. A backend that fails is asked again until it works, or nobody waits any more.
///
/// The handler is not run again because its reply could not be sent: the reply is kept here and tried again, for as long as `lease`
/// and [`REPLY_PATIENCE`] allow. Then the message is given up.
pub(super) async fn settle(
    message: &Message,
    handled: Handled,
    rules: &Rules,
    control: &Control,
    trouble: &Trouble,
) {
    let Handled { outcome, took, lease } = handled;
    let reason = failure_of(&outcome);
    let mut step = first_step(message, outcome, rules);
    tell_attempt(control, message, reason, took, &step);
    let mut refusals = Refusals::default();
    loop {
        let error = match take(message, &step).await {
            Ok(()) => return trouble.is_over(),
            Err(error) => error,
        };
        match error {
            MailboxError::ReceiptExpired => return tell_lost(control, message),
            error if error.is_passing() => {
                let pause = trouble.note(&error);
                if !waited(pause, &mut control.orders()).await {
                    return;
                }
            }
            error if matches!(step, Step::Reply(..)) => {
                let goes_on = match refusals.pause(REPLY_PATIENCE.min(lease)) {
                    Some(pause) => waited(pause, &mut control.orders()).await,
                    None => false,
                };
                if !goes_on {
                    let error = Failure::new(REPLY_FAILED, error.to_string()).to_string();
                    step = Step::Bury(DeadReason::Failed { error });
                    tell_attempt(control, message, step.error(), took, &step);
                }
            }
            error => {
                // It can do no more for this message: its lease runs out.
                trouble.note(&error);
                return;
            }
        }
    }
}

/// A reply that the mailbox of the requester has refused, and since when.
#[derive(Default)]
struct Refusals {
    times: u32,
    since: Option<Instant>,
}

impl Refusals {
    /// How long to wait before it is tried again; none if that has gone on for long enough.
    fn pause(&mut self, patience: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.times += 1;
        (since.elapsed() < patience).then(|| REPLY_PAUSES.pause(self.times, Chance::draw().number()))
    }
}

/// Why an attempt failed, if it did.
fn failure_of(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done(_) | Outcome::NotBegun { .. } => None,
        Outcome::Failed(failure) => Some(failure.to_string()),
        Outcome::Unanswerable(error) => Some(format!("{REPLY_FAILED}: {error}")),
        Outcome::Undecodable(error) => Some(format!("{UNDECODABLE}: {error}")),
    }
}

/// Each attempt is told, with its error if it failed. What nobody has begun was none.
fn tell_attempt(control: &Control, message: &Message, error: Option<String>, took: Duration, step: &Step) {
    let (name, message_id) = (|| control.name().into(), || message.id.to_string().into());
    let delivery = message.delivery_count;
    match (error, step) {
        (None, Step::Release) => {}
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
            then: step.word(),
        }),
    }
}

/// False if nobody waits any more.
pub(super) async fn waited(pause: Duration, orders: &mut watch::Receiver<Orders>) -> bool {
    let cut = orders.wait_for(|orders| orders.end == End::Cut);
    let was_cut = timeout(pause, cut).await.is_ok();
    !was_cut && !orders.borrow().is_overdue()
}

fn first_step(message: &Message, outcome: Outcome, rules: &Rules) -> Step {
    match outcome {
        Outcome::Done(Some(body)) if asks_for_reply(message, rules) => Step::Reply(body, Send::new()),
        Outcome::Done(_) => Step::Ack,
        Outcome::Failed(failure) => after_failure(message, &failure, rules),
        Outcome::Unanswerable(error) => given_up(message, &Failure::new(REPLY_FAILED, error), rules),
        Outcome::Undecodable(error) if rules.give_up == GiveUp::Reply && message.wants_reply() => {
            error_reply(&Failure::new(UNDECODABLE, error))
        }
        Outcome::Undecodable(error) => Step::Bury(DeadReason::Undecodable { error }),
        Outcome::NotBegun { .. } => Step::Release,
    }
}

fn asks_for_reply(message: &Message, rules: &Rules) -> bool {
    rules.replies == Replies::WhenAsked && message.wants_reply()
}

fn after_failure(message: &Message, failure: &Failure, rules: &Rules) -> Step {
    let chance = Chance::draw().number();
    let error = failure.to_string();
    let (delivery, limit) = (message.delivery_count, message.max_deliveries);
    match rules.policy.after_failure(failure.known_as(&rules.policy), delivery, limit, chance) {
        AfterFailure::Again(pause) => Step::Again(Nack::new().visibility(pause).error(error)),
        AfterFailure::Bury => given_up(message, failure, rules),
    }
}

fn given_up(message: &Message, failure: &Failure, rules: &Rules) -> Step {
    match rules.give_up {
        GiveUp::Reply if message.wants_reply() => error_reply(failure),
        GiveUp::Reply | GiveUp::Bury => Step::Bury(DeadReason::Failed { error: failure.to_string() }),
    }
}

fn error_reply(failure: &Failure) -> Step {
    let told = serde_json::json!({ "error": { "name": failure.name, "message": failure.message } });
    Step::Reply(told.to_string().into_bytes(), Send::new().attribute(ERROR_ATTRIBUTE, &failure.name))
}

async fn take(message: &Message, step: &Step) -> Result<(), MailboxError> {
    let (before, after) = step.failpoints();
    reach(before);
    let taken = try_take(message, step).await;
    reach(after);
    taken
}

async fn try_take(message: &Message, step: &Step) -> Result<(), MailboxError> {
    match step {
        Step::Ack => message.ack().await,
        Step::Reply(body, options) => {
            let receipt = message.receipt.as_ref().ok_or(MailboxError::ReceiptExpired)?;
            message.mailbox.reply(receipt, body.clone(), options.clone()).await.map(|_| ())
        }
        Step::Again(options) => message.nack(options.clone()).await,
        Step::Release => message.release().await,
        Step::Bury(reason) => message.bury(reason.clone()).await,
    }
}

/// The message is somebody else's by now.
pub(super) fn tell_lost(control: &Control, message: &Message) {
    emit_with(Level::Warn, || Event::LoopLeaseLost {
        name: control.name().into(),
        message_id: message.id.to_string().into(),
    });
}

/// Gives back messages that nobody has begun, all in one batch, to be received at once: their delivery is not counted. Those whose
/// leases are over are not ours any more.
pub(super) async fn release(messages: &[Message], control: &Control, trouble: &Trouble) {
    let Some(mailbox) = messages.first().map(|message| &message.mailbox) else { return };
    let receipts = receipts(messages);
    give_back(|| mailbox.release(&receipts), control, trouble).await;
}

/// The same for those that somebody has begun, and was cut off from.
pub(super) async fn nack(messages: &[Message], control: &Control, trouble: &Trouble) {
    let Some(mailbox) = messages.first().map(|message| &message.mailbox) else { return };
    let receipts = receipts(messages);
    give_back(|| mailbox.nack_all(&receipts, Nack::new().error(CUT_OFF)), control, trouble).await;
}

fn receipts(messages: &[Message]) -> Vec<Receipt> {
    messages.iter().filter_map(|message| message.receipt.clone()).collect()
}

async fn give_back<'a>(ask: impl Fn() -> Pending<'a, usize>, control: &Control, trouble: &Trouble) {
    let mut orders = control.orders();
    reach(failpoint::Step::GiveBack);
    while let Err(error) = ask().await {
        let pause = trouble.note(&error);
        if !error.is_passing() || !waited(pause, &mut orders).await {
            return;
        }
    }
    reach(failpoint::Step::GivenBack);
}
