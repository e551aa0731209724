//! The rules that decide what happens to a handled message.

use super::HandlingOutcome;
use super::settlement::Settlement;
use crate::HandlerFailure;
use crate::mailbox::{
    AfterFailure, DeadLetterPolicy, DeadReason, ERROR_ATTRIBUTE, Message, NackOptions, SendOptions,
};

/// What happens to a message that the policy gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUpAction {
    /// The message becomes a dead letter.
    #[default]
    Bury,
    /// The requester gets the error as a reply with the attribute [`ERROR_ATTRIBUTE`]. This includes the error of a
    /// body that cannot be read. A message that wants no reply is buried.
    Reply,
}

/// Whether the values of handlers are sent as replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replies {
    /// Values are sent if the message names a mailbox for the reply.
    #[default]
    WhenAsked,
    /// Values are never sent.
    Never,
}

/// The rules that decide what happens to a handled message.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettlementRules {
    pub(crate) policy: DeadLetterPolicy,
    pub(crate) give_up: GiveUpAction,
    pub(crate) replies: Replies,
}

impl SettlementRules {
    /// Returns how the lease of a message ends.
    pub(super) fn settlement(&self, message: &Message, outcome: HandlingOutcome) -> Settlement {
        match outcome {
            HandlingOutcome::Done(Some(body))
                if self.replies == Replies::WhenAsked && message.wants_reply() =>
            {
                Settlement::Reply(body, Box::default())
            }
            HandlingOutcome::Done(_) => Settlement::Ack,
            HandlingOutcome::Failed(failure) => self.after_failure(message, &failure),
            HandlingOutcome::Unanswerable(failure) => {
                let reason = DeadReason::Failed { error: failure.to_string() };
                self.given_up(message, &failure, reason)
            }
            HandlingOutcome::Undecodable(failure) => {
                let reason = DeadReason::Undecodable { error: failure.message.clone() };
                self.given_up(message, &failure, reason)
            }
            HandlingOutcome::NotBegun { .. } => Settlement::Release,
        }
    }

    fn after_failure(&self, message: &Message, failure: &HandlerFailure) -> Settlement {
        let error = failure.to_string();
        let (delivery, limit) = (message.delivery_count, message.max_deliveries);
        match self.policy.after_failure(failure.known_as(&self.policy), delivery, limit, fastrand::f64()) {
            AfterFailure::Again(pause) => {
                Settlement::Again(NackOptions::new().visibility(pause).error(error))
            }
            AfterFailure::Bury => self.given_up(message, failure, DeadReason::Failed { error }),
        }
    }

    fn given_up(&self, message: &Message, failure: &HandlerFailure, reason: DeadReason) -> Settlement {
        if self.give_up == GiveUpAction::Bury || !message.wants_reply() {
            return Settlement::Bury(reason);
        }
        let body = serde_json::json!({ "error": { "name": failure.name, "message": failure.message } });
        Settlement::Reply(
            body.to_string().into_bytes(),
            Box::new(SendOptions::new().attribute(ERROR_ATTRIBUTE, &failure.name)),
        )
    }
}
