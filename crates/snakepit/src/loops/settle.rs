//! Reply, ack, nack or bury: what becomes of a message that was handled.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::failpoint::{self, reach};
use super::trouble::Trouble;
use super::{Control, End, Failure, Orders};
pub use crate::mailbox::ERROR_ATTRIBUTE;
use crate::mailbox::{
    AfterFailure, DeadLetterPolicy, DeadReason, Mailbox, MailboxError, Message, Nack, Pending, Receipt, Send,
};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, emit_with};

/// The error of a message whose handler was cancelled.
pub(super) const CUT_OFF: &str = "Cancelled: the loop was stopped while the message was being handled";

/// What handling a message came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, and this is the answer, if one is given.
    Done(Option<Vec<u8>>),
    /// It failed.
    Failed(Failure),
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

/// What is done with a message that the policy gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUp {
    /// It is moved to the dead letters.
    #[default]
    Bury,
    /// Whoever waits for a reply gets the error, with the attribute [`ERROR_ATTRIBUTE`]; if nobody does, it is buried.
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
pub(super) async fn settle(
    message: &Message,
    outcome: Outcome,
    rules: &Rules,
    control: &Control,
    trouble: &Trouble,
) {
    let mut step = first_step(message, outcome, rules);
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
                let failure = Failure::new("ReplyFailed", error.to_string());
                step = after_failure(message, &failure, rules, GiveUp::Bury);
            }
            error => {
                // It can do no more for this message: its lease runs out.
                trouble.note(&error);
                return;
            }
        }
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
        Outcome::Failed(failure) => after_failure(message, &failure, rules, rules.give_up),
        Outcome::Undecodable(error) => Step::Bury(DeadReason::Undecodable { error }),
        Outcome::NotBegun { .. } => Step::Release,
    }
}

fn asks_for_reply(message: &Message, rules: &Rules) -> bool {
    rules.replies == Replies::WhenAsked && message.reply_to.is_some()
}

fn after_failure(message: &Message, failure: &Failure, rules: &Rules, give_up: GiveUp) -> Step {
    let chance = Chance::draw().number();
    let error = failure.to_string();
    let (delivery, limit) = (message.delivery_count, message.max_deliveries);
    match rules.policy.after_failure(&failure.name, delivery, limit, chance) {
        AfterFailure::Again(pause) => Step::Again(Nack::new().visibility(pause).error(error)),
        AfterFailure::Bury if give_up == GiveUp::Reply && message.reply_to.is_some() => {
            let told = serde_json::json!({ "error": { "name": failure.name, "message": failure.message } });
            Step::Reply(told.to_string().into_bytes(), Send::new().attribute(ERROR_ATTRIBUTE, &failure.name))
        }
        AfterFailure::Bury => Step::Bury(DeadReason::Failed { error }),
    }
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
        message: message.id.to_string().into(),
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
