//! Messages as lines of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;
use snakepit::mailbox::{Attempt, AttemptEnd, DeadLetter, DeadReason, Found, Message, Place, Reply};

use crate::say;

#[derive(Serialize)]
struct Shown<'a> {
    id: String,
    /// As a text, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// Its bytes in hexadecimal, if it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
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
    /// Where it is, if it was looked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    place: Option<&'a Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<ShownAttempt<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    died_at: Option<String>,
}

#[derive(Serialize)]
struct ShownAttempt<'a> {
    delivery: u32,
    began_at: String,
    took_s: f64,
    holder: &'a str,
    end: AttemptEnd,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> ShownAttempt<'a> {
    fn of(attempt: &'a Attempt) -> Self {
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

pub(super) fn message(message: &Message) -> String {
    say::json(&shown(message))
}

pub(super) fn found(found: &Found) -> String {
    let mut shown = shown(&found.message);
    shown.place = Some(&found.place);
    say::json(&shown)
}

#[derive(Serialize)]
struct ShownReply<'a> {
    id: String,
    in_reply_to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
    replied_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

pub(super) fn reply(reply: &Reply) -> String {
    let body = std::str::from_utf8(&reply.body).ok();
    say::json(&ShownReply {
        id: reply.id.to_string(),
        in_reply_to: reply.in_reply_to.to_string(),
        body,
        body_hex: body.is_none().then(|| hex(&reply.body)),
        replied_at: time(reply.replied_at),
        error: reply.error(),
        attributes: &reply.attributes,
        trace: reply.trace.as_deref(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(super) fn dead_letter(letter: &DeadLetter) -> String {
    let mut shown = shown(&letter.message);
    shown.reason = Some(&letter.reason);
    shown.died_at = Some(time(letter.died_at));
    say::json(&shown)
}

fn shown(message: &Message) -> Shown<'_> {
    let body = std::str::from_utf8(&message.body).ok();
    Shown {
        id: message.id.to_string(),
        body,
        body_hex: body.is_none().then(|| hex(&message.body)),
        receipt: message.receipt.as_ref().map(ToString::to_string),
        delivery_count: message.delivery_count,
        enqueued_at: time(message.enqueued_at),
        priority: message.priority,
        reply_to: message.reply_to.as_deref(),
        attributes: &message.attributes,
        trace: message.trace.as_deref(),
        in_reply_to: message.in_reply_to.map(|id| id.to_string()),
        group: message.group.as_deref(),
        place: None,
        last_error: message.last_error(),
        attempts: message.attempts.iter().map(ShownAttempt::of).collect(),
        reason: None,
        died_at: None,
    }
}

/// RFC 3339.
fn time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|error| error.to_string(), |time| time.to_string())
}
