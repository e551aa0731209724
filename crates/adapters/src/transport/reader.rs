//! Reads the frames of a worker and handles them. The host does not trust the worker: the cost of every frame is
//! bounded.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use snakepit_protocol::message::{HostMessage, ReadyMessage, WorkerMessage};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;
use tracing::Level;

use super::connection::{Connection, ConnectionState, Results};
use super::frame::{FrameKind, HEADER, Header, VERSION};
use super::log_text::{beginning, log_text};
use super::{spans, tools};
use crate::adapter::{HeldCall, ItemDelivery, ProtocolFault, WorkerChannel, answer_together};
use crate::call::{Input, Portion, RemoteError};
use crate::harmless;
use crate::logging::somebody_says;
use crate::telemetry;
use crate::value::{Encoded, EncodedItems, ValueError};
use crate::worker::{Output, OutputStream};

/// The number of bytes to read at a time.
const READ: usize = 64 * 1024;
/// Smaller payloads are copied, so that a value that is kept does not keep the whole buffer alive.
const COPIED: usize = 16 * 1024;

/// The maximum length of the text of a fault. The rest is cut off.
const FAULT: usize = 2 * 1024;

/// The outcome of a worker's start.
#[derive(Debug)]
pub(crate) enum ReadyOutcome {
    /// The worker is ready.
    Yes(Box<ReadyMessage>),
    /// The worker's code could not be loaded.
    Failed(RemoteError),
}

/// The answer to a call.
enum FrameAnswer {
    Value(Encoded),
    Error(Encoded),
    End,
}

/// Answered calls, and their answers.
type Answers = Vec<(HeldCall<Results>, FrameAnswer)>;

/// Buffers for the frames of a read, reused for the next read.
#[derive(Default)]
struct ReadFrames {
    frames: Vec<(Header, WorkerMessage)>,
    answers: Answers,
}

/// Reads until the connection ends. Returns the reason for the end.
pub(super) async fn read(connection: &Arc<Connection>, mut socket: pipe::Receiver) -> ProtocolFault {
    let mut buffer = BytesMut::with_capacity(READ);
    let mut memory = ReadFrames::default();
    loop {
        if let Ok(Some(header)) = Header::peek(&buffer, connection.max_frame) {
            buffer.reserve((HEADER + header.length).saturating_sub(buffer.len()).max(1));
        } else {
            buffer.reserve(READ);
        }
        match socket.read_buf(&mut buffer).await {
            Ok(0) if buffer.is_empty() => return ProtocolFault::Closed(WorkerChannel::Socket),
            Ok(0) => return ProtocolFault::CutFrame,
            Ok(_) => {}
            Err(error) => return ProtocolFault::broke(WorkerChannel::Socket, error),
        }
        let heard = hear(connection, &mut buffer, &mut memory);
        if let Ok(2..) = heard {
            // Callers that have their answers may call again at once. They run first, so that their calls are written
            // together.
            tokio::task::yield_now().await;
        }
        connection.end_reading();
        if let Err(fault) = heard {
            connection.send(HostMessage::Fault(&fault.to_string()));
            return fault;
        }
    }
}

/// Handles all complete frames. Returns the number of answers among them.
fn hear(
    connection: &Arc<Connection>,
    buffer: &mut BytesMut,
    heard: &mut ReadFrames,
) -> Result<usize, ProtocolFault> {
    // Without the lock, because decoding may take time.
    let cut = cut(buffer, &mut heard.frames, &connection.output, connection.max_frame);
    let (sorted, told) = {
        let mut state = connection.state();
        Connection::begin_reading(&mut state);
        let mut frames = heard.frames.drain(..);
        let sorted = frames
            .try_for_each(|(header, said)| frame(connection, &mut state, header, said, &mut heard.answers));
        if !heard.answers.is_empty() {
            state.calls.answered_together(Instant::now(), heard.answers.iter().map(|(held, _)| held));
        }
        (sorted, std::mem::take(&mut state.told))
    };
    // Emitted without the lock, because a listener may do anything.
    told.into_iter().for_each(telemetry::emit);
    let count = heard.answers.len();
    if count > 0 {
        answer_together(|| {
            for (held, answer) in heard.answers.drain(..) {
                held.finish(match answer {
                    FrameAnswer::Value(value) => Ok(value),
                    FrameAnswer::End => Ok(Encoded::nil()),
                    FrameAnswer::Error(error) => Err(RemoteError::read(&error)),
                });
            }
        });
    }
    sorted.and(cut).map(|()| count)
}

/// Cuts the received bytes into frames and decodes them. On an error, `frames` has the frames before it.
pub(super) fn cut(
    buffer: &mut BytesMut,
    frames: &mut Vec<(Header, WorkerMessage)>,
    output: &Output,
    max_frame: usize,
) -> Result<(), ProtocolFault> {
    while let Some(header) = Header::peek(buffer, max_frame)? {
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
        let payload = Encoded::from_worker(payload, header.has_bodies.into(), max_frame)
            .map_err(|error| unreadable(header.kind, error))?;
        frames.extend(decode(header, payload, output)?.map(|said| (header, said)));
    }
    Ok(())
}

fn frame(
    connection: &Arc<Connection>,
    state: &mut ConnectionState,
    header: Header,
    said: WorkerMessage,
    answers: &mut Answers,
) -> Result<(), ProtocolFault> {
    if let FrameKind::Result | FrameKind::Results | FrameKind::End | FrameKind::Error = header.kind {
        state.calls.check_sent(header.call)?;
    }
    match said {
        WorkerMessage::Result(value) => one_answer(state, header, FrameAnswer::Value(value), answers)?,
        WorkerMessage::Results(entries) => results(state, header, entries, answers)?,
        WorkerMessage::End => one_answer(state, header, FrameAnswer::End, answers)?,
        WorkerMessage::Error(error) if header.call == 0 => not_started(state, &error)?,
        WorkerMessage::Error(error) => answer(state, header.call, FrameAnswer::Error(error), answers),
        WorkerMessage::Items(values) => items(state, header.call, values)?,
        WorkerMessage::Ready(message) => ready(state, message)?,
        WorkerMessage::Progress(fraction, text) => {
            if let Some(held) = state.calls.get(header.call) {
                held.call.progress(fraction, text);
            }
        }
        WorkerMessage::HostCall(asked) => {
            tools::host_call(connection, state, header.call, *asked, header.length)?;
        }
        WorkerMessage::HostCredit((id, items, bytes)) => state.tools.grant(id, Portion { items, bytes }),
        WorkerMessage::HostCancel((id,)) => state.tools.end(id),
        WorkerMessage::Telemetry(span) => {
            let held = state.calls.get(header.call);
            state.told.extend(held.zip(span).and_then(|(held, span)| spans::event_of(*span, &held.call)));
        }
        // The host does not use these messages yet, or used them when it decoded them.
        WorkerMessage::Pong | WorkerMessage::Bye | WorkerMessage::Log(_) | WorkerMessage::Fault(_) => {}
    }
    Ok(())
}

/// Takes the answered call. An answer to a call that the worker does not hold is dropped: the call was already
/// answered, or never sent.
fn answer(state: &mut ConnectionState, call: u64, answer: FrameAnswer, answers: &mut Answers) {
    if let Some(held) = Connection::take(state, call) {
        answers.push((held, answer));
    } else if somebody_says(Level::DEBUG) {
        tracing::debug!(call, "an answer to an unknown call was dropped");
    }
}

/// Handles RESULT and END, which answer one call.
fn one_answer(
    state: &mut ConnectionState,
    header: Header,
    outcome: FrameAnswer,
    answers: &mut Answers,
) -> Result<(), ProtocolFault> {
    if let Some(held) = state.calls.get(header.call)
        && let Input::Many(_) = held.call.input()
    {
        return Err(ProtocolFault::OneAnswerForMany { call: header.call, kind: header.kind });
    }
    answer(state, header.call, outcome, answers);
    Ok(())
}

/// Handles results of a CALLS: the last of them, or some. If there are more results than inputs, none is known to
/// belong to its input, so none is trusted.
fn results(
    state: &mut ConnectionState,
    header: Header,
    entries: Encoded,
    answers: &mut Answers,
) -> Result<(), ProtocolFault> {
    let call = header.call;
    let Some(held) = state.calls.get_mut(call) else {
        if somebody_says(Level::DEBUG) {
            tracing::debug!(call, "results of an unknown call were dropped");
        }
        return Ok(());
    };
    let Input::Many(inputs) = held.call.input() else {
        return Err(ProtocolFault::ResultsForOne { call });
    };
    let count = entries.list_len().map_err(|error| unreadable(header.kind, error))?;
    held.data += count;
    if held.data > inputs.len() {
        return Err(ProtocolFault::TooManyResults { call, results: held.data, inputs: inputs.len() });
    }
    if !header.has_more {
        answer(state, call, FrameAnswer::Value(entries), answers);
    } else if count == 0 {
        return Err(ProtocolFault::EmptyResults { call });
    } else {
        held.call.send_item(entries);
        // A result proves that the call was started, whatever the slate says.
        state.calls.started(call);
    }
    Ok(())
}

fn items(state: &mut ConnectionState, call: u64, items: EncodedItems) -> Result<(), ProtocolFault> {
    match state.calls.items(call, items) {
        ItemDelivery::OverCredit(unit) => return Err(ProtocolFault::CreditExceeded { call, unit }),
        ItemDelivery::Unasked => HostMessage::Cancel(1).write(&mut state.outbox, call),
        ItemDelivery::Passed | ItemDelivery::Dropped => {}
    }
    Ok(())
}

fn ready(state: &mut ConnectionState, message: Box<ReadyMessage>) -> Result<(), ProtocolFault> {
    if message.protocol != u32::from(VERSION) {
        let worker = message.protocol.to_string();
        return Err(ProtocolFault::Version { worker, engine: VERSION.into() });
    }
    let waiting = state.ready.take().ok_or(ProtocolFault::ReadyTwice)?;
    let _ = waiting.send(ReadyOutcome::Yes(message));
    Ok(())
}

fn not_started(state: &mut ConnectionState, error: &Encoded) -> Result<(), ProtocolFault> {
    let waiting = state.ready.take().ok_or(ProtocolFault::ErrorWithoutCall)?;
    let _ = waiting.send(ReadyOutcome::Failed(RemoteError::read(error)));
    Ok(())
}

/// Decodes a frame. Logs go to the output at once, so they return `None`, as do spans that nobody listens for. An error is
/// the fault of the worker.
fn decode(header: Header, payload: Encoded, output: &Output) -> Result<Option<WorkerMessage>, ProtocolFault> {
    if header.kind == FrameKind::Telemetry && !spans::are_heard() {
        return Ok(None);
    }
    let unreadable = |error| unreadable(header.kind, error);
    match WorkerMessage::decode(header.kind, payload).map_err(unreadable)? {
        None => Err(ProtocolFault::HostFrame(header.kind)),
        Some(WorkerMessage::Fault(text)) => {
            Err(ProtocolFault::Rejection(harmless(beginning(&text, FAULT)).into_owned()))
        }
        Some(WorkerMessage::Log((level, text, fields))) => {
            output.text(OutputStream::Log, &log_text(&level, &text, Some(&fields)).map_err(unreadable)?);
            Ok(None)
        }
        message => Ok(message),
    }
}

fn unreadable(kind: FrameKind, error: ValueError) -> ProtocolFault {
    ProtocolFault::UnreadableFrame { kind, error }
}
