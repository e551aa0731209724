//! Messages as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;
use snakepit::mailbox::{
    Attempt, AttemptEnd, DeadLetter, DeadReason, FoundMessage, Message, MessageState, Reply,
};

use crate::shared::table;

/// A body as text or, if it is not text, as bytes in hexadecimal.
#[derive(Serialize)]
struct BodyJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

impl<'a> BodyJson<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let body = std::str::from_utf8(bytes).ok();
        Self { body, body_hex: body.is_none().then(|| hex(bytes)) }
    }
}

#[derive(Serialize)]
pub(super) struct MessageJson<'a> {
    id: String,
    #[serde(flatten)]
    body: BodyJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    delivery_count: u32,
    enqueued_at: String,
    priority: i8,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    rate_key: Option<&'a str>,
    /// The state of a message that was looked up by its id.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    place: Option<&'a MessageState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AttemptJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    died_at: Option<String>,
}

#[derive(Serialize)]
struct AttemptJson<'a> {
    delivery: u32,
    began_at: String,
    took_s: f64,
    holder: &'a str,
    end: AttemptEnd,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct ReplyJson<'a> {
    id: String,
    in_reply_to: String,
    #[serde(flatten)]
    body: BodyJson<'a>,
    replied_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

impl<'a> MessageJson<'a> {
    pub(super) fn found(found: &'a FoundMessage) -> Self {
        Self { place: Some(&found.state), ..Self::from(&found.message) }
    }

    pub(super) fn dead(letter: &'a DeadLetter) -> Self {
        Self {
            reason: Some(&letter.reason),
            died_at: Some(time(letter.died_at)),
            ..Self::from(&letter.message)
        }
    }
}

impl<'a> From<&'a Message> for MessageJson<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            id: message.id.to_string(),
            body: BodyJson::new(&message.body),
            receipt: message.receipt.as_ref().map(ToString::to_string),
            delivery_count: message.delivery_count,
            enqueued_at: time(message.enqueued_at),
            priority: message.priority,
            reply_to: message.reply_to.as_deref(),
            attributes: &message.attributes,
            trace: message.trace.as_deref(),
            in_reply_to: message.in_reply_to.map(|id| id.to_string()),
            group: message.group.as_deref(),
            rate_key: message.rate_key.as_deref(),
            place: None,
            last_error: message.last_error(),
            attempts: message.attempts.iter().map(AttemptJson::from).collect(),
            reason: None,
            died_at: None,
        }
    }
}

impl<'a> From<&'a Attempt> for AttemptJson<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            delivery: attempt.delivery,
            began_at: time(attempt.began_at),
            took_s: attempt.took.as_secs_f64(),
            holder: &attempt.holder,
            end: attempt.end,
            error: attempt.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Reply> for ReplyJson<'a> {
    fn from(reply: &'a Reply) -> Self {
        Self {
            id: reply.id.to_string(),
            in_reply_to: reply.in_reply_to.to_string(),
            body: BodyJson::new(&reply.body),
            replied_at: time(reply.replied_at),
            error: reply.error(),
            attributes: &reply.attributes,
            trace: reply.trace.as_deref(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn time(time: SystemTime) -> String {
    table::rfc3339(time).unwrap_or_else(table::dash)
}
