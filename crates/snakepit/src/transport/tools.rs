//! Tools of the host that run for a worker: what comes of them, and how much of a stream the worker takes.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::watch;

use super::connection::{Connection, State};
use super::frame::Kind;
use super::messages;
use crate::call::{Portion, RemoteError};
use crate::tool::ToolAnswer;
use crate::value::{Encoded, write};

/// What a stream to the worker may still send.
pub(super) struct Credit(watch::Sender<Left>);

/// The last item may be larger than what is left.
struct Left {
    items: i64,
    bytes: i64,
}

impl Credit {
    fn new(first: Portion) -> Self {
        let credit = Self(watch::Sender::new(Left { items: 0, bytes: 0 }));
        credit.add(first);
        credit
    }

    pub(super) fn add(&self, more: Portion) {
        self.0.send_modify(|left| {
            left.items = left.items.saturating_add(more.items.into());
            left.bytes = left.bytes.saturating_add(i64::try_from(more.bytes).unwrap_or(i64::MAX));
        });
    }

    /// Takes the credit for one item.
    fn spend(&self, bytes: usize) {
        self.0.send_modify(|left| {
            left.items -= 1;
            left.bytes = left.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        });
    }

    /// Until there is credit for an item.
    async fn some(&self) {
        // An error would say that the sender is gone, and it is here.
        let _ = self.0.subscribe().wait_for(|left| left.items > 0 && left.bytes > 0).await;
    }
}

/// Runs a tool beside the connection, and sends what comes of it.
pub(super) fn start(
    connection: &Arc<Connection>,
    state: &mut State,
    call: u64,
    id: u64,
    tool: &str,
    args: Encoded,
    stream: Option<Portion>,
) {
    let Some(held) = state.calls.get(&call) else { return };
    let asked = held.call.ask(tool, args);
    let credit = Arc::new(Credit::new(stream.unwrap_or_default()));
    let granted = Arc::clone(&credit);
    let connection = Arc::clone(connection);
    let task = tokio::spawn(async move {
        let outcome = asked.await;
        match outcome {
            Ok(ToolAnswer::Value(value)) if stream.is_some() => {
                if send_with_id(&connection, Kind::HostItem, call, id, &value).is_some() {
                    send_id(&connection, Kind::HostEnd, call, id);
                }
            }
            Ok(ToolAnswer::Value(value)) => {
                send_with_id(&connection, Kind::HostResult, call, id, &value);
            }
            Ok(ToolAnswer::Stream(_)) if stream.is_none() => {
                send_error(
                    &connection,
                    call,
                    id,
                    &RemoteError::new("streaming", "the tool streams: use host.stream"),
                );
            }
            Ok(ToolAnswer::Stream(mut items)) => loop {
                granted.some().await;
                connection.has_room().await;
                match items.next().await {
                    Some(Ok(item)) => match send_with_id(&connection, Kind::HostItem, call, id, &item) {
                        Some(bytes) => granted.spend(bytes),
                        None => break,
                    },
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

/// Sends a value, and says how long it is; None: it cannot be sent, and the error was sent in its place.
fn send_with_id(connection: &Connection, kind: Kind, call: u64, id: u64, value: &Encoded) -> Option<usize> {
    let error = match messages::with_id(id, value) {
        // The worker would refuse it, and be lost with all that it has.
        Ok(payload) if payload.payload_len() > connection.max_frame => {
            format!(
                "the tool's answer is {} bytes long, and max_frame is {}",
                payload.payload_len(),
                connection.max_frame
            )
        }
        Ok(payload) => {
            connection.send(kind, call, &payload);
            return Some(payload.payload_len());
        }
        Err(error) => error.to_string(),
    };
    send_error(connection, call, id, &RemoteError::new("bad_value", error));
    None
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
