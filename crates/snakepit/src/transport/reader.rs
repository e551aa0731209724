//! What a worker says, frame by frame. It is believed in nothing that costs the host.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::Instant;
use tracing::Level;

use super::connection::{Connection, Ready, State};
use super::frame::{HEADER, Header, Kind};
use super::incoming::{self, Incoming};
use super::messages::ReadyMessage;
use super::tools;
use crate::call::{Call, Input, RemoteError};
use crate::logging::somebody_says;
use crate::telemetry;
use crate::value::{Encoded, write};
use crate::worker::Output;

/// How much is read at a time.
const READ: usize = 64 * 1024;
/// Payloads below this are copied out, so that a value that is kept does not keep the whole buffer.
const COPIED: usize = 16 * 1024;

/// What an answer does to its call.
enum Answer {
    Value(Encoded),
    Error(Encoded),
    End,
    /// A stream that nobody asked for has ended, however it did.
    Unasked,
}

/// Memory for what one read brings, used again for the next.
#[derive(Default)]
struct Heard {
    frames: Vec<(Header, Incoming)>,
    answers: Vec<(Call, Answer)>,
}

/// Reads until the end, and says why it is the end.
pub(super) async fn read(connection: &Arc<Connection>, mut socket: OwnedReadHalf) -> String {
    let mut buffer = BytesMut::with_capacity(READ);
    let mut memory = Heard::default();
    loop {
        if let Ok(Some(header)) = Header::peek(&buffer, connection.max_frame) {
            buffer.reserve((HEADER + header.length).saturating_sub(buffer.len()).max(1));
        } else {
            buffer.reserve(READ);
        }
        match socket.read_buf(&mut buffer).await {
            Ok(0) if buffer.is_empty() => return "it closed its socket".into(),
            Ok(0) => return "it closed its socket in the middle of a frame".into(),
            Ok(_) => {}
            Err(error) => return format!("its socket broke: {error}"),
        }
        let heard = hear(connection, &mut buffer, &mut memory);
        if let Ok(2..) = heard {
            // Those who have their answers may call again at once: they go first, and what they send is written once.
            tokio::task::yield_now().await;
        }
        connection.end_reading();
        if let Err(fault) = heard {
            let told = Encoded::encode(&fault);
            if let Ok(told) = told {
                connection.send(Kind::Fault, 0, &told);
            }
            return fault;
        }
    }
}

/// Works off all complete frames; how many answers were among them.
fn hear(connection: &Arc<Connection>, buffer: &mut BytesMut, heard: &mut Heard) -> Result<usize, String> {
    // Without the lock: what a frame says may take its time to decode.
    let cut = cut(buffer, &mut heard.frames, &connection.output, connection.max_frame);
    let (sorted, told) = {
        let mut state = connection.state();
        Connection::begin_reading(&mut state);
        let mut frames = heard.frames.drain(..);
        let sorted = frames
            .try_for_each(|(header, said)| frame(connection, &mut state, header, said, &mut heard.answers));
        (sorted, std::mem::take(&mut state.told))
    };
    // Without the lock: whoever listens may do anything.
    told.into_iter().for_each(telemetry::emit);
    let count = heard.answers.len();
    if count > 0 {
        let now = Instant::now();
        let since = connection.state().busy_since.replace(now);
        let service = since.map_or_else(Default::default, |since| now - since) / count as u32;
        for (call, answer) in heard.answers.drain(..) {
            match answer {
                Answer::Value(value) => call.finish_after(service, Ok(value)),
                Answer::End => call.finish(Ok(Encoded::nil())),
                Answer::Error(error) => call.finish_after(service, Err(RemoteError::read(&error))),
                Answer::Unasked => {
                    let error = RemoteError::streaming(call.command());
                    call.finish(Err(error));
                }
            }
        }
    }
    sorted.and(cut).map(|()| count)
}

/// Cuts what was received into frames, and reads them. The error comes after the frames before it.
pub(super) fn cut(
    buffer: &mut BytesMut,
    frames: &mut Vec<(Header, Incoming)>,
    output: &Output,
    max_frame: usize,
) -> Result<(), String> {
    while let Some(header) = Header::peek(buffer, max_frame).map_err(|error| error.to_string())? {
        if buffer.len() < HEADER + header.length {
            break;
        }
        buffer.advance(HEADER);
        let payload = if header.length < COPIED {
            let copy = Bytes::copy_from_slice(&buffer[..header.length]);
            buffer.advance(header.length);
            copy
        } else {
            buffer.split_to(header.length).freeze()
        };
        let payload = Encoded::from_worker(payload, header.has_bodies, max_frame)
            .map_err(|error| incoming::unreadable(header.kind, &error))?;
        frames.push((header, incoming::read(header, payload, output)?));
    }
    Ok(())
}

fn frame(
    connection: &Arc<Connection>,
    state: &mut State,
    header: Header,
    said: Incoming,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<(), String> {
    if let Incoming::Result(_) | Incoming::Results(_) | Incoming::End | Incoming::Error(_) = said {
        Connection::check_begun(state, header.call)?;
    }
    match said {
        Incoming::Result(value) => one_answer(state, header, Answer::Value(value), answers)?,
        Incoming::Results(entries) => results(state, header, entries, answers)?,
        Incoming::End => one_answer(state, header, Answer::End, answers)?,
        Incoming::NotStarted(error) => not_started(state, error)?,
        Incoming::Error(error) => answer(state, header.call, Answer::Error(error), answers),
        Incoming::Item(value) => item(state, header.call, value)?,
        Incoming::Ready(message) => ready(state, *message)?,
        Incoming::Progress(fraction, text) => {
            if let Some(held) = state.calls.get(&header.call) {
                held.call.progress(fraction, text);
            }
        }
        Incoming::HostCall(asked) => {
            tools::host_call(connection, state, header.call, *asked, header.length)?;
        }
        Incoming::HostCredit(id, more) => state.tools.grant(id, more),
        Incoming::HostCancel(id) => state.tools.end(id),
        Incoming::Span(span) => {
            let held = state.calls.get(&header.call);
            state.told.extend(held.and_then(|held| span.told_of(&held.call)));
        }
        Incoming::Nothing => {}
    }
    Ok(())
}

/// An answer to a call that the worker does not hold (any more) is dropped: it was answered, or never asked.
fn answer(state: &mut State, call: u64, answer: Answer, answers: &mut Vec<(Call, Answer)>) {
    if let Some(held) = Connection::take(state, call) {
        answers.push((held.call, if held.streams_unasked { Answer::Unasked } else { answer }));
    } else if somebody_says(Level::DEBUG) {
        tracing::debug!(call, "an answer to an unknown call was dropped");
    }
}

/// RESULT and END, which answer one call.
fn one_answer(
    state: &mut State,
    header: Header,
    outcome: Answer,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<(), String> {
    if let Some(held) = state.calls.get(&header.call)
        && let Input::Many(_) = &held.call.input
    {
        return Err(format!("it sent a {:?} for call {}, which is many calls", header.kind, header.call));
    }
    answer(state, header.call, outcome, answers);
    Ok(())
}

/// Outcomes of many calls that came together: the last of them, or some. What cannot be told apart is believed in
/// nothing: with more outcomes than calls, none is known to belong to its call.
fn results(
    state: &mut State,
    header: Header,
    entries: Encoded,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<(), String> {
    let call = header.call;
    let Some(held) = state.calls.get_mut(&call) else {
        if somebody_says(Level::DEBUG) {
            tracing::debug!(call, "results of an unknown call were dropped");
        }
        return Ok(());
    };
    let Input::Many(inputs) = &held.call.input else {
        return Err(format!("it sent Results for call {call}, which is one call"));
    };
    let count = entries.list_len().map_err(|error| incoming::unreadable(header.kind, &error))?;
    held.results += count;
    if held.results > inputs.len() {
        return Err(format!("it sent {} results for the {} of call {call}", held.results, inputs.len()));
    }
    if !header.has_more {
        answer(state, call, Answer::Value(entries), answers);
    } else if count == 0 {
        return Err(format!("it sent Results for call {call} that hold none, and more to follow"));
    } else {
        held.call.send_item(entries);
        Connection::has_started(state, call);
    }
    Ok(())
}

fn item(state: &mut State, call: u64, item: Encoded) -> Result<(), String> {
    let Some(held) = state.calls.get_mut(&call) else { return Ok(()) };
    let Some(credit) = held.call.stream_credit() else {
        // The caller's mistake costs this call alone.
        if !std::mem::replace(&mut held.streams_unasked, true) {
            state.outbox.frame(Kind::Cancel, call, |out| write::uint(out, 1));
        }
        return Ok(());
    };
    let unread = held.call.send_item(item);
    if unread.reaches(credit) {
        let what = if unread.items >= credit.items { "items" } else { "bytes" };
        return Err(format!("it sent more {what} for call {call} than it had credit for"));
    }
    Ok(())
}

fn ready(state: &mut State, message: ReadyMessage) -> Result<(), String> {
    if message.protocol != u32::from(super::frame::VERSION) {
        return Err(format!(
            "it speaks protocol {}, and this engine speaks {}",
            message.protocol,
            super::frame::VERSION
        ));
    }
    let waiting = state.ready.take().ok_or("it said twice that it is ready")?;
    let _ = waiting.send(Ready::Yes(message));
    Ok(())
}

fn not_started(state: &mut State, error: RemoteError) -> Result<(), String> {
    let waiting = state.ready.take().ok_or("it sent an error that belongs to no call")?;
    let _ = waiting.send(Ready::Failed(error));
    Ok(())
}
