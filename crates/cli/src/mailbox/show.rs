//! Messages as lines of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;
use snakepit::mailbox::{DeadLetter, DeadReason, Message};

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
    reason: Option<&'a DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    died_at: Option<String>,
}

pub(super) fn message(message: &Message) -> String {
    say::json(&shown(message))
}

pub(super) fn dead_letter(letter: &DeadLetter) -> String {
    let mut shown = shown(&letter.message);
    shown.reason = Some(&letter.reason);
    shown.died_at = Some(time(letter.died_at));
    say::json(&shown)
}

fn shown(message: &Message) -> Shown<'_> {
    let body = std::str::from_utf8(&message.body).ok();
    let hex = || {
        message.body.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    Shown {
        id: message.id.to_string(),
        body,
        body_hex: body.is_none().then(hex),
        receipt: message.receipt.as_ref().map(ToString::to_string),
        delivery_count: message.delivery_count,
        enqueued_at: time(message.enqueued_at),
        priority: message.priority,
        reply_to: message.reply_to.as_deref(),
        attributes: &message.attributes,
        trace: message.trace.as_deref(),
        reason: None,
        died_at: None,
    }
}

/// RFC 3339.
fn time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|error| error.to_string(), |time| time.to_string())
}
