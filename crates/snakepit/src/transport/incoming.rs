//! What a frame of a worker says, decoded before anybody's lock is taken: a worker decides how long that takes.
//!
//! Payloads that belong to callers stay as they are: whoever asked for a value decodes it, in a task of its own.

use super::frame::{Header, Kind};
use super::log_text::{beginning, log_text};
use super::messages::{self, HostCall, ReadyMessage};
use super::spans::{self, Span};
use crate::call::{Portion, RemoteError};
use crate::harmless;
use crate::value::{Encoded, ValueError};
use crate::worker::Output;

/// What a frame about the worker itself may take once it is decoded.
const MEMORY: usize = 16 << 20;
/// What small ones may take: numbers, and a text.
const LITTLE: usize = 4096;
/// So much of a text of progress is told.
const PROGRESS: usize = 8 * 1024;
/// So much of a fault is told.
const FAULT: usize = 2 * 1024;

/// What a frame says.
pub(super) enum Incoming {
    Result(Encoded),
    Results(Encoded),
    End,
    Error(Encoded),
    /// The worker could not start.
    NotStarted(RemoteError),
    Item(Encoded),
    Ready(Box<ReadyMessage>),
    Progress(Option<f64>, Option<String>),
    HostCall(Box<HostCall>),
    HostCredit(u64, Portion),
    HostCancel(u64),
    Span(Box<Span>),
    /// What nobody asks for, or what is done already.
    Nothing,
}

/// Reads a frame. Logs go to the output at once. The error is the fault of the worker.
pub(super) fn read(header: Header, payload: Encoded, output: &Output) -> Result<Incoming, String> {
    let unreadable = |error: ValueError| unreadable(header.kind, &error);
    Ok(match header.kind {
        Kind::Result => Incoming::Result(payload),
        Kind::Results => Incoming::Results(payload),
        Kind::End => Incoming::End,
        Kind::Error if header.call == 0 => Incoming::NotStarted(RemoteError::read(&payload)),
        Kind::Error => Incoming::Error(payload),
        Kind::Item => Incoming::Item(payload),
        Kind::Ready => Incoming::Ready(payload.decode_within(MEMORY).map_err(unreadable)?),
        Kind::Progress => {
            let (fraction, text): (Option<f64>, Option<String>) =
                payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::Progress(fraction, text.map(|text| beginning(&text, PROGRESS).to_owned()))
        }
        Kind::Log => {
            let (level, text, fields): (String, String, Encoded) =
                payload.decode_within(LITTLE).map_err(unreadable)?;
            output.text("log", &log_text(&level, &text, Some(&fields)).map_err(unreadable)?);
            Incoming::Nothing
        }
        Kind::HostCall => {
            Incoming::HostCall(Box::new(messages::read_host_call(&payload, LITTLE).map_err(unreadable)?))
        }
        Kind::HostCredit => {
            let (id, items, bytes) = payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::HostCredit(id, Portion { items, bytes })
        }
        Kind::HostCancel => {
            let (id,): (u64,) = payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::HostCancel(id)
        }
        Kind::Telemetry => spans::read(&payload).map_or(Incoming::Nothing, Incoming::Span),
        // Nobody asks for these yet; they are known, so they are no fault.
        Kind::Pong | Kind::Bye => Incoming::Nothing,
        Kind::Fault => {
            let text: String = payload.decode_within(LITTLE).map_err(unreadable)?;
            return Err(format!("it refuses what it was sent: {}", harmless(beginning(&text, FAULT))));
        }
        Kind::Hello
        | Kind::Call
        | Kind::Calls
        | Kind::Credit
        | Kind::Cancel
        | Kind::Ping
        | Kind::Drain
        | Kind::HostResult
        | Kind::HostError
        | Kind::HostItem
        | Kind::HostEnd => {
            return Err(format!("it sent a frame of kind {:?}, which only the host may send", header.kind));
        }
    })
}

pub(super) fn unreadable(kind: Kind, error: &ValueError) -> String {
    format!("it sent a frame of kind {kind:?} that cannot be read: {error}")
}
