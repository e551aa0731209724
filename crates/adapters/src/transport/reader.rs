//! Reads the frames of a worker and handles them. The host does not trust the worker: the cost of every frame is
//! bounded.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;
use tracing::Level;

use super::connection::{Connection, ConnectionState, Results};
use super::frame::{FrameKind, HEADER, Header, VERSION};
use super::log_text::{beginning, log_text};
use super::spans::{self, WorkerSpan, read_trace};
use super::stacks::StackSignals;
use super::tools;
use crate::adapter::{HeldCall, Introduction, ItemDelivery, ProtocolFault, WorkerChannel, answer_together};
use crate::call::{Input, Portion, RemoteError};
use crate::harmless;
use crate::logging::somebody_says;
use crate::telemetry::{self, TraceContext};
use crate::value::{Encoded, EncodedItems, ValueError, write};
use crate::worker::{Output, OutputStream};

/// The number of bytes to read at a time.
const READ: usize = 64 * 1024;
/// Smaller payloads are copied, so that a value that is kept does not keep the whole buffer alive.
const COPIED: usize = 16 * 1024;

/// The maximum decoded size of a frame about the worker itself.
const MEMORY: usize = 16 << 20;
/// The maximum decoded size of a small frame: numbers and a text.
const LITTLE: usize = 4096;
/// The maximum length of a progress text. The rest is cut off.
const PROGRESS: usize = 8 * 1024;
/// The maximum length of the text of a fault. The rest is cut off.
const FAULT: usize = 2 * 1024;

/// The outcome of a worker's start.
#[derive(Debug)]
pub(crate) enum ReadyOutcome {
    /// The worker is ready.
    Yes(ReadyMessage),
    /// The worker's code could not be loaded.
    Failed(RemoteError),
}

/// The worker's first message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReadyMessage {
    pub(crate) protocol: u32,
    pub(crate) pid: u32,
    pub(crate) signals: Signals,
    pub(crate) features: Vec<String>,
    #[serde(flatten)]
    pub(crate) introduction: Introduction,
}

/// The signals that a worker handles.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Signals {
    pub(crate) stack: Option<i32>,
    pub(crate) cancel: Option<i32>,
    pub(crate) tasks: Option<i32>,
}

impl Signals {
    /// Returns the signals that make the worker write its stacks.
    pub(crate) fn of_stacks(self) -> Option<StackSignals> {
        Some(StackSignals { threads: self.stack?, tasks: self.tasks })
    }
}

/// The options of a `HOST_CALL`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HostCallOptions {
    /// The first credit: items and bytes.
    pub(crate) stream: Option<(u32, u64)>,
    /// The span of the tool call: `[traceparent]` or `[traceparent, tracestate]`.
    pub(crate) trace: Option<Vec<String>>,
}

impl HostCallOptions {
    /// Returns the trace that the tool call belongs to.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let mut texts = self.trace.iter().flatten();
        read_trace(texts.next()?, texts.next().map(String::as_str))
    }
}

/// A `HOST_CALL`.
pub(crate) struct HostCall {
    pub(crate) id: u64,
    pub(crate) tool: String,
    pub(crate) args: Encoded,
    pub(crate) options: HostCallOptions,
}

/// Decodes a `HOST_CALL`, with or without options.
pub(crate) fn read_host_call(payload: &Encoded, room: usize) -> Result<HostCall, ValueError> {
    type WithOptions = (u64, String, Encoded, HostCallOptions);
    if let Ok((id, tool, args, options)) = payload.decode_within::<WithOptions>(room) {
        return Ok(HostCall { id, tool, args, options });
    }
    let (id, tool, args) = payload.decode_within::<(u64, String, Encoded)>(room)?;
    Ok(HostCall { id, tool, args, options: HostCallOptions::default() })
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
    frames: Vec<(Header, Incoming)>,
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
            let told = Encoded::encode(&fault.to_string());
            if let Ok(told) = told {
                connection.send(FrameKind::Fault, 0, &told);
            }
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
    frames: &mut Vec<(Header, Incoming)>,
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
        frames.push((header, decode(header, payload, output)?));
    }
    Ok(())
}

fn frame(
    connection: &Arc<Connection>,
    state: &mut ConnectionState,
    header: Header,
    said: Incoming,
    answers: &mut Answers,
) -> Result<(), ProtocolFault> {
    if let Incoming::Result(_) | Incoming::Results(_) | Incoming::End | Incoming::Error(_) = said {
        state.calls.check_sent(header.call)?;
    }
    match said {
        Incoming::Result(value) => one_answer(state, header, FrameAnswer::Value(value), answers)?,
        Incoming::Results(entries) => results(state, header, entries, answers)?,
        Incoming::End => one_answer(state, header, FrameAnswer::End, answers)?,
        Incoming::NotStarted(error) => not_started(state, error)?,
        Incoming::Error(error) => answer(state, header.call, FrameAnswer::Error(error), answers),
        Incoming::Items(values) => items(state, header.call, values)?,
        Incoming::Ready(message) => ready(state, *message)?,
        Incoming::Progress(fraction, text) => {
            if let Some(held) = state.calls.get(header.call) {
                held.call.progress(fraction, text);
            }
        }
        Incoming::HostCall(asked) => {
            tools::host_call(connection, state, header.call, *asked, header.length)?;
        }
        Incoming::HostCredit(id, more) => state.tools.grant(id, more),
        Incoming::HostCancel(id) => state.tools.end(id),
        Incoming::WorkerSpan(span) => {
            let held = state.calls.get(header.call);
            state.told.extend(held.and_then(|held| span.told_of(&held.call)));
        }
        Incoming::Nothing => {}
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
        ItemDelivery::Unasked => state.outbox.frame(FrameKind::Cancel, call, |out| write::uint(out, 1)),
        ItemDelivery::Passed | ItemDelivery::Dropped => {}
    }
    Ok(())
}

fn ready(state: &mut ConnectionState, message: ReadyMessage) -> Result<(), ProtocolFault> {
    if message.protocol != u32::from(VERSION) {
        let worker = message.protocol.to_string();
        return Err(ProtocolFault::Version { worker, engine: VERSION.into() });
    }
    let waiting = state.ready.take().ok_or(ProtocolFault::ReadyTwice)?;
    let _ = waiting.send(ReadyOutcome::Yes(message));
    Ok(())
}

fn not_started(state: &mut ConnectionState, error: RemoteError) -> Result<(), ProtocolFault> {
    let waiting = state.ready.take().ok_or(ProtocolFault::ErrorWithoutCall)?;
    let _ = waiting.send(ReadyOutcome::Failed(error));
    Ok(())
}

/// The contents of a frame.
pub(super) enum Incoming {
    Result(Encoded),
    Results(Encoded),
    End,
    Error(Encoded),
    /// The worker could not start.
    NotStarted(RemoteError),
    Items(EncodedItems),
    Ready(Box<ReadyMessage>),
    Progress(Option<f64>, Option<String>),
    HostCall(Box<HostCall>),
    HostCredit(u64, Portion),
    HostCancel(u64),
    WorkerSpan(Box<WorkerSpan>),
    /// A frame that needs no handling, or was handled when it was decoded.
    Nothing,
}

/// Decodes a frame. Logs go to the output at once. An error is the fault of the worker.
fn decode(header: Header, payload: Encoded, output: &Output) -> Result<Incoming, ProtocolFault> {
    let unreadable = |error: ValueError| unreadable(header.kind, error);
    Ok(match header.kind {
        FrameKind::Result => Incoming::Result(payload),
        FrameKind::Results => Incoming::Results(payload),
        FrameKind::End => Incoming::End,
        FrameKind::Error if header.call == 0 => Incoming::NotStarted(RemoteError::read(&payload)),
        FrameKind::Error => Incoming::Error(payload),
        FrameKind::Item => Incoming::Items(EncodedItems::one(payload)),
        FrameKind::Items => Incoming::Items(EncodedItems::list(payload).map_err(unreadable)?),
        FrameKind::Ready => Incoming::Ready(payload.decode_within(MEMORY).map_err(unreadable)?),
        FrameKind::Progress => {
            let (fraction, text): (Option<f64>, Option<String>) =
                payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::Progress(fraction, text.map(|text| beginning(&text, PROGRESS).to_owned()))
        }
        FrameKind::Log => {
            let (level, text, fields): (String, String, Encoded) =
                payload.decode_within(LITTLE).map_err(unreadable)?;
            output.text(OutputStream::Log, &log_text(&level, &text, Some(&fields)).map_err(unreadable)?);
            Incoming::Nothing
        }
        FrameKind::HostCall => {
            Incoming::HostCall(Box::new(read_host_call(&payload, LITTLE).map_err(unreadable)?))
        }
        FrameKind::HostCredit => {
            let (id, items, bytes) = payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::HostCredit(id, Portion { items, bytes })
        }
        FrameKind::HostCancel => {
            let (id,): (u64,) = payload.decode_within(LITTLE).map_err(unreadable)?;
            Incoming::HostCancel(id)
        }
        FrameKind::Telemetry => spans::read(&payload).map_or(Incoming::Nothing, Incoming::WorkerSpan),
        // The host does not use these frames yet. They are part of the protocol, so they are not a fault.
        FrameKind::Pong | FrameKind::Bye => Incoming::Nothing,
        FrameKind::Fault => {
            let text: String = payload.decode_within(LITTLE).map_err(unreadable)?;
            return Err(ProtocolFault::Rejection(harmless(beginning(&text, FAULT)).into_owned()));
        }
        FrameKind::Hello
        | FrameKind::Call
        | FrameKind::Calls
        | FrameKind::Credit
        | FrameKind::Cancel
        | FrameKind::Ping
        | FrameKind::Drain
        | FrameKind::HostResult
        | FrameKind::HostError
        | FrameKind::HostItem
        | FrameKind::HostEnd => {
            return Err(ProtocolFault::HostFrame(header.kind));
        }
    })
}

fn unreadable(kind: FrameKind, error: ValueError) -> ProtocolFault {
    ProtocolFault::UnreadableFrame { kind, error }
}
