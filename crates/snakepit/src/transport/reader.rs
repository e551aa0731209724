//! What a worker says, frame by frame. It is believed in nothing that costs the host.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::connection::{Connection, Ready, State};
use super::frame::{HEADER, Header, Kind};
use super::messages::{self, ReadyMessage};
use crate::call::{Call, RemoteError};
use crate::tool::ToolAnswer;
use crate::value::{Encoded, Map, Value, ValueError, write};

/// How much is read at a time.
const READ: usize = 64 * 1024;
/// Payloads below this are copied out, so that a value that is kept does not keep the whole buffer.
const COPIED: usize = 16 * 1024;

/// What an answer does to its call.
enum Answer {
    Value(Encoded),
    Error(Encoded),
    End,
}

/// Reads until the end, and says why it is the end.
pub(super) async fn read(connection: &Arc<Connection>, mut socket: OwnedReadHalf) -> String {
    let mut buffer = BytesMut::with_capacity(READ);
    let mut answers = Vec::new();
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
        let heard = hear(connection, &mut buffer, &mut answers);
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
fn hear(
    connection: &Arc<Connection>,
    buffer: &mut BytesMut,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<usize, String> {
    let heard = {
        let mut state = connection.state();
        Connection::begin_reading(&mut state);
        sort_out(connection, &mut state, buffer, answers)
    };
    let count = answers.len();
    if count > 0 {
        let now = Instant::now();
        let since = connection.state().busy_since.replace(now);
        let service = since.map_or_else(Default::default, |since| now - since) / count as u32;
        for (call, answer) in answers.drain(..) {
            match answer {
                Answer::Value(value) => call.finish_after(service, Ok(value)),
                Answer::End => call.finish(Ok(Encoded::nil())),
                Answer::Error(error) => call.finish_after(service, Err(read_error(&error))),
            }
        }
    }
    heard.map(|()| count)
}

fn sort_out(
    connection: &Arc<Connection>,
    state: &mut State,
    buffer: &mut BytesMut,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<(), String> {
    while let Some(header) = Header::peek(buffer, connection.max_frame).map_err(|error| error.to_string())? {
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
        let payload = Encoded::from_payload(payload, header.has_bodies)
            .map_err(|error| unreadable(header.kind, &error))?;
        frame(connection, state, header, payload, answers)?;
    }
    Ok(())
}

fn unreadable(kind: Kind, error: &ValueError) -> String {
    format!("it sent a frame of kind {kind:?} that cannot be read: {error}")
}

fn frame(
    connection: &Arc<Connection>,
    state: &mut State,
    header: Header,
    payload: Encoded,
    answers: &mut Vec<(Call, Answer)>,
) -> Result<(), String> {
    let unreadable = |error: ValueError| unreadable(header.kind, &error);
    match header.kind {
        Kind::Result | Kind::Results => answer(state, header.call, Answer::Value(payload), answers),
        Kind::End => answer(state, header.call, Answer::End, answers),
        Kind::Error if header.call == 0 => not_started(state, &payload)?,
        Kind::Error => answer(state, header.call, Answer::Error(payload), answers),
        Kind::Item => item(state, header.call, payload)?,
        Kind::Ready => ready(state, payload.decode().map_err(unreadable)?)?,
        Kind::Progress => {
            let (fraction, text) = payload.decode().map_err(unreadable)?;
            if let Some(held) = state.calls.get(&header.call) {
                held.call.progress(fraction, text);
            }
        }
        Kind::Log => {
            let (level, text, fields): (String, String, Value) = payload.decode().map_err(unreadable)?;
            let fields = if fields == Value::Map(Map::new()) { String::new() } else { format!(" {fields}") };
            connection.output.text("log", &format!("{level}: {text}{fields}"));
        }
        Kind::HostCall => {
            let (id, tool, args, options) = messages::read_host_call(&payload).map_err(unreadable)?;
            host_call(connection, state, header.call, id, &tool, args, options.stream);
        }
        Kind::HostCredit => {
            let (id, items): (u64, u32) = payload.decode().map_err(unreadable)?;
            if let Some(tool) = state.tools.get(&id) {
                tool.credit.add_permits(
                    (items as usize).min(Semaphore::MAX_PERMITS / 2 - tool.credit.available_permits()),
                );
            }
        }
        Kind::HostCancel => {
            let (id,): (u64,) = payload.decode().map_err(unreadable)?;
            Connection::end_tool(state, id);
        }
        // Nobody asks for these yet; they are known, so they are no fault.
        Kind::Pong | Kind::Telemetry | Kind::Bye => {}
        Kind::Fault => {
            return Err(format!(
                "it refuses what it was sent: {}",
                payload.decode::<String>().map_err(unreadable)?
            ));
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
    }
    Ok(())
}

/// An answer to a call that the worker does not hold (any more) is dropped: it was answered, or never asked.
fn answer(state: &mut State, call: u64, answer: Answer, answers: &mut Vec<(Call, Answer)>) {
    if let Some(call) = Connection::take(state, call) {
        answers.push((call, answer));
    } else {
        tracing::debug!(call, "an answer to an unknown call was dropped");
    }
}

fn item(state: &mut State, call: u64, item: Encoded) -> Result<(), String> {
    let Some(held) = state.calls.get(&call) else { return Ok(()) };
    let Some(credit) = held.call.stream_credit() else {
        return Err(format!("it sent a stream for call {call}, which asked for none"));
    };
    if held.call.send_item(item) > credit as usize {
        return Err(format!("it sent more items for call {call} than it had credit for"));
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

fn not_started(state: &mut State, error: &Encoded) -> Result<(), String> {
    let waiting = state.ready.take().ok_or("it sent an error that belongs to no call")?;
    let _ = waiting.send(Ready::Failed(read_error(error)));
    Ok(())
}

fn read_error(error: &Encoded) -> RemoteError {
    error.decode().unwrap_or_else(|unreadable| {
        RemoteError::new(
            "bad_payload",
            format!("the worker failed, with an error that cannot be read: {unreadable}"),
        )
    })
}

/// Runs a tool beside the connection, and sends what comes of it.
fn host_call(
    connection: &Arc<Connection>,
    state: &mut State,
    call: u64,
    id: u64,
    tool: &str,
    args: Encoded,
    stream: Option<u32>,
) {
    let Some(held) = state.calls.get(&call) else { return };
    let asked = held.call.ask(tool, args);
    let credit = Arc::new(Semaphore::new(stream.unwrap_or(0) as usize));
    let granted = Arc::clone(&credit);
    let connection = Arc::clone(connection);
    let task = tokio::spawn(async move {
        let outcome = asked.await;
        match outcome {
            Ok(ToolAnswer::Value(value)) if stream.is_some() => {
                send_with_id(&connection, Kind::HostItem, call, id, &value);
                send_id(&connection, Kind::HostEnd, call, id);
            }
            Ok(ToolAnswer::Value(value)) => send_with_id(&connection, Kind::HostResult, call, id, &value),
            Ok(ToolAnswer::Stream(_)) if stream.is_none() => {
                send_error(
                    &connection,
                    call,
                    id,
                    &RemoteError::new("streaming", "the tool streams: use host.stream"),
                );
            }
            Ok(ToolAnswer::Stream(mut items)) => loop {
                match granted.acquire().await {
                    Ok(permit) => permit.forget(),
                    Err(_) => return,
                }
                match items.next().await {
                    Some(Ok(item)) => send_with_id(&connection, Kind::HostItem, call, id, &item),
                    Some(Err(error)) => break send_error(&connection, call, id, &error),
                    None => break send_id(&connection, Kind::HostEnd, call, id),
                }
            },
            Err(error) => send_error(&connection, call, id, &error),
        }
        Connection::end_tool(&mut connection.state(), id);
    });
    Connection::add_tool(state, id, call, task.abort_handle(), credit);
}

fn send_with_id(connection: &Connection, kind: Kind, call: u64, id: u64, value: &Encoded) {
    match messages::with_id(id, value) {
        // The worker would refuse it, and be lost with all that it has.
        Ok(payload) if payload.payload_len() > connection.max_frame => {
            let message = format!(
                "the tool's answer is {} bytes long, and max_frame is {}",
                payload.payload_len(),
                connection.max_frame
            );
            send_error(connection, call, id, &RemoteError::new("bad_value", message));
        }
        Ok(payload) => connection.send(kind, call, &payload),
        Err(error) => send_error(connection, call, id, &RemoteError::new("bad_value", error.to_string())),
    }
}

fn send_error(connection: &Connection, call: u64, id: u64, error: &RemoteError) {
    let told = Encoded::encode(&(id, error));
    if let Ok(told) = told {
        connection.send(Kind::HostError, call, &told);
    }
}

fn send_id(connection: &Connection, kind: Kind, call: u64, id: u64) {
    connection.send_frame(kind, call, |out| {
        write::array_header(out, 1);
        write::uint(out, id);
    });
}
