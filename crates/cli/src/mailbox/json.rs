//! Messages as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;
use snakepit::mailbox::{
    Attempt, AttemptEnd, DeadLetter, DeadReason, FoundMessage, Message, MessageState, Reply,
};

use crate::shared::output::report;
use crate::shared::output::table;

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

report! {
    pub(super) struct MessageJson<'a> from message: &'a Message {
        id: String = message.id.to_string(),
        #[serde(flatten)]
        body: BodyJson<'a> = BodyJson::new(&message.body),
        #[serde(skip_serializing_if = "Option::is_none")]
        receipt: Option<String> = message.receipt.as_ref().map(ToString::to_string),
        delivery_count: u32 = message.delivery_count,
        enqueued_at: String = time(message.enqueued_at),
        priority: i8 = message.priority,
        #[serde(skip_serializing_if = "Option::is_none")]
        reply_to: Option<&'a str> = message.reply_to.as_deref(),
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        attributes: &'a BTreeMap<String, String> = &message.attributes,
        #[serde(skip_serializing_if = "Option::is_none")]
        trace: Option<&'a str> = message.trace.as_deref(),
        #[serde(skip_serializing_if = "Option::is_none")]
        in_reply_to: Option<String> = message.in_reply_to.map(|id| id.to_string()),
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str> = message.group.as_deref(),
        rate_key: Option<&'a str> = message.rate_key.as_deref(),
        /// The state of a message that was looked up by its id.
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        place: Option<&'a MessageState> = None,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_error: Option<&'a str> = message.last_error(),
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attempts: Vec<AttemptJson<'a>> = message.attempts.iter().map(AttemptJson::from).collect(),
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a DeadReason> = None,
        #[serde(skip_serializing_if = "Option::is_none")]
        died_at: Option<String> = None,
    }

    struct AttemptJson<'a> from attempt: &'a Attempt {
        delivery: u32 = attempt.delivery,
        began_at: String = time(attempt.began_at),
        took_s: f64 = attempt.took.as_secs_f64(),
        holder: &'a str = &attempt.holder,
        end: AttemptEnd = attempt.end,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str> = attempt.error.as_deref(),
    }

    pub(super) struct ReplyJson<'a> from reply: &'a Reply {
        id: String = reply.id.to_string(),
        in_reply_to: String = reply.in_reply_to.to_string(),
        #[serde(flatten)]
        body: BodyJson<'a> = BodyJson::new(&reply.body),
        replied_at: String = time(reply.replied_at),
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str> = reply.error(),
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        attributes: &'a BTreeMap<String, String> = &reply.attributes,
        #[serde(skip_serializing_if = "Option::is_none")]
        trace: Option<&'a str> = reply.trace.as_deref(),
    }
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn time(time: SystemTime) -> String {
    table::rfc3339(time).unwrap_or_else(table::dash)
}
