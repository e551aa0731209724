//! The tools of the host that run for one worker: how many there may be, and how their answers reach it.
//!
//! Bounded on all sides, whatever the worker does: by the number of tool calls under way, by the bytes that they
//! brought, and by what waits to be written, for an answer that finds no room is not made into a frame, and its tool
//! call stays under way. The credit of a stream protects the worker; that its next item is not made before there is room
//! protects the host.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::by_number::ByNumber;
use super::connection::{Connection, State};
use super::frame::Kind;
use super::messages::{self, HostCall};
use crate::call::{Portion, RemoteError};
use crate::tool::ToolAnswer;
use crate::value::{Encoded, ValueError};

/// How many tool calls of one worker may be under way; spec/wire.md names it.
const MOST: usize = 1024;
/// How many bytes they may have brought together, if `max_frame` is not more.
const MOST_BYTES: usize = 16 << 20;
/// How many refusals may wait for a worker that does not read them.
const MOST_REFUSALS: usize = 16 * MOST;

/// What a stream to the worker may still send.
#[derive(Debug)]
pub(crate) struct Credit(watch::Sender<Left>);

/// The last item may be larger than what is left.
#[derive(Debug)]
struct Left {
    items: i64,
    bytes: i64,
}

impl Credit {
    pub(crate) fn new(first: Portion) -> Self {
        let credit = Self(watch::Sender::new(Left { items: 0, bytes: 0 }));
        credit.add(first);
        credit
    }

    pub(crate) fn add(&self, more: Portion) {
        self.0.send_modify(|left| {
            left.items = left.items.saturating_add(more.items.into());
            left.bytes = left.bytes.saturating_add(i64::try_from(more.bytes).unwrap_or(i64::MAX));
        });
    }

    /// Takes the credit for one item.
    pub(crate) fn spend(&self, bytes: usize) {
        self.0.send_modify(|left| {
            left.items -= 1;
            left.bytes = left.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        });
    }

    /// Until there is credit for an item.
    pub(crate) async fn some(&self) {
        // An error would say that the sender is gone, and it is here.
        let _ = self.0.subscribe().wait_for(|left| left.items > 0 && left.bytes > 0).await;
    }
}

/// A tool that runs for the worker.
pub(crate) struct Run {
    /// The call that asked for it.
    pub(crate) call: u64,
    /// Tells it from a later one with the same id.
    pub(crate) number: u64,
    /// What its frame brought.
    pub(crate) bytes: usize,
    pub(crate) task: AbortHandle,
    /// Of a stream.
    pub(crate) credit: Option<Arc<Credit>>,
}

/// All that run for one worker, by the ids that it chose.
#[derive(Default)]
pub(crate) struct Tools {
    runs: ByNumber<Run>,
    bytes: usize,
    next_number: u64,
    /// How many refusals were left to be written since the last write.
    refusals: usize,
}

impl Tools {
    fn remove(&mut self, id: u64) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        self.bytes -= run.bytes;
        Some(run)
    }

    /// Whether one with this id is under way.
    #[cfg(feature = "grpc")]
    pub(crate) fn has(&self, id: u64) -> bool {
        self.runs.contains_key(&id)
    }

    /// A number for one that is about to run.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// One more runs, for a call.
    pub(crate) fn add(&mut self, id: u64, run: Run) {
        self.bytes += run.bytes;
        self.runs.insert(id, run);
    }

    /// One is over by itself.
    #[cfg(feature = "grpc")]
    pub(crate) fn forget(&mut self, id: u64, number: u64) {
        if self.runs.get(&id).is_some_and(|run| run.number == number) {
            self.remove(id);
        }
    }

    /// The worker no longer wants it.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some(run) = self.remove(id) {
            run.task.abort();
        }
    }

    /// A call was answered: nothing runs for it any more.
    pub(crate) fn end_of(&mut self, call: u64) {
        if self.runs.is_empty() {
            return;
        }
        let bytes = &mut self.bytes;
        self.runs.retain(|_, run| {
            let keep = run.call != call;
            if !keep {
                *bytes -= run.bytes;
                run.task.abort();
            }
            keep
        });
    }

    pub(crate) fn end_all(&mut self) {
        self.runs.drain().for_each(|(_, run)| run.task.abort());
        self.bytes = 0;
    }

    /// Lets a stream send so much more.
    pub(crate) fn grant(&self, id: u64, more: Portion) {
        if let Some(credit) = self.runs.get(&id).and_then(|run| run.credit.as_ref()) {
            credit.add(more);
        }
    }

    /// Everything that waited is being written.
    pub(super) fn refusals_are_sent(&mut self) {
        self.refusals = 0;
    }

    /// Why no more may be under way, if so.
    pub(crate) fn is_full(&self, bytes: usize, max_frame: usize) -> Option<String> {
        let most_bytes = max_frame.max(MOST_BYTES);
        if self.runs.len() >= MOST {
            Some(format!("{MOST} tool calls of this worker are under way, and no more are allowed at a time"))
        } else if self.bytes + bytes > most_bytes {
            Some(format!(
                "the tool calls of this worker that are under way would hold {} bytes, and {most_bytes} is the limit",
                self.bytes + bytes
            ))
        } else {
            None
        }
    }
}

/// Runs a tool beside the connection, and sends what comes of it. The error is the fault of the worker.
pub(super) fn host_call(
    connection: &Arc<Connection>,
    state: &mut State,
    call: u64,
    asked: HostCall,
    bytes: usize,
) -> Result<(), String> {
    let HostCall { id, tool, args, options } = asked;
    if state.tools.runs.contains_key(&id) {
        // An error with this id would end the first one at the worker: there is no way to refuse only the second.
        return Err(format!("it asked for a tool with the id {id}, which it uses for another one under way"));
    }
    let Some(held) = state.calls.get(&call) else { return Ok(()) };
    if let Some(reason) = state.tools.is_full(bytes, connection.max_frame) {
        state.tools.refusals += 1;
        if state.tools.refusals > MOST_REFUSALS {
            return Err("it asks for tools without end, and does not read the answers".into());
        }
        let (kind, payload) = error(id, &RemoteError::new("refused", reason), connection.max_frame);
        state.outbox.value_frame(kind, call, &payload);
        return Ok(());
    }
    let answer = held.call.ask_within(&tool, args, options.trace());
    let number = state.tools.number();
    let credit = options.stream.map(|(items, bytes)| Arc::new(Credit::new(Portion { items, bytes })));
    let asker = Asker { connection: Arc::clone(connection), call, id, number, credit: credit.clone() };
    let task = tokio::spawn(async move { asker.pass_on(answer.await).await }).abort_handle();
    state.tools.add(id, Run { call, number, bytes, task, credit });
    Ok(())
}

/// Whether a tool call goes on after a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoesOn,
    IsOver,
}

/// Who waits for a tool at the worker.
struct Asker {
    connection: Arc<Connection>,
    call: u64,
    id: u64,
    number: u64,
    /// Of a stream.
    credit: Option<Arc<Credit>>,
}

impl Asker {
    async fn pass_on(&self, outcome: Result<ToolAnswer, RemoteError>) {
        match (outcome, &self.credit) {
            (Ok(ToolAnswer::Value(value)), None) => {
                let (kind, payload) = self.answer(Kind::HostResult, &value);
                self.send(kind, payload, Then::IsOver).await;
            }
            (Ok(ToolAnswer::Value(value)), Some(credit)) => {
                if self.send_item(credit, &value).await == Then::GoesOn {
                    self.send_end().await;
                }
            }
            (Ok(ToolAnswer::Stream(_)), None) => {
                self.send_error(&RemoteError::new("streaming", "the tool streams: use host.stream")).await;
            }
            (Ok(ToolAnswer::Stream(mut items)), Some(credit)) => loop {
                credit.some().await;
                drop(self.connection.room().await);
                match items.next().await {
                    Some(Ok(item)) if self.send_item(credit, &item).await == Then::GoesOn => {}
                    Some(Ok(_)) => return,
                    Some(Err(error)) => return self.send_error(&error).await,
                    None => return self.send_end().await,
                }
            },
            (Err(error), _) => self.send_error(&error).await,
        }
    }

    /// Sends an item; one that cannot be sent is the stream's last, and the error goes in its place.
    async fn send_item(&self, credit: &Credit, item: &Encoded) -> Then {
        let (kind, payload) = self.answer(Kind::HostItem, item);
        let then = if kind == Kind::HostItem { Then::GoesOn } else { Then::IsOver };
        credit.spend(payload.payload_len());
        self.send(kind, payload, then).await;
        then
    }

    async fn send_end(&self) {
        match Encoded::encode(&(self.id,)) {
            Ok(payload) => self.send(Kind::HostEnd, payload, Then::IsOver).await,
            Err(error) => self.send_error(&bad_value(&error)).await,
        }
    }

    async fn send_error(&self, reason: &RemoteError) {
        let (kind, payload) = error(self.id, reason, self.connection.max_frame);
        self.send(kind, payload, Then::IsOver).await;
    }

    /// A value as a frame, or the error why it cannot be one.
    fn answer(&self, kind: Kind, value: &Encoded) -> (Kind, Encoded) {
        let max_frame = self.connection.max_frame;
        let reason = match messages::with_id(self.id, value) {
            Ok(payload) if payload.payload_len() <= max_frame => return (kind, payload),
            // The worker would refuse it, and be lost with all that it has.
            Ok(payload) => RemoteError::new(
                "bad_value",
                format!(
                    "the tool's answer is {} bytes long, and max_frame is {max_frame}",
                    payload.payload_len()
                ),
            ),
            Err(error) => bad_value(&error),
        };
        error(self.id, &reason, max_frame)
    }

    /// Sends a frame once there is room for it, unless nobody wants it any more. In one step with the last frame the
    /// tool call is over: whoever has read that may use the id again.
    async fn send(&self, kind: Kind, payload: Encoded, then: Then) {
        let mut state = self.connection.room().await;
        let run = state.tools.runs.get(&self.id);
        if run.is_none_or(|run| run.number != self.number) {
            return;
        }
        if then == Then::IsOver {
            state.tools.remove(self.id);
        }
        state.outbox.value_frame(kind, self.call, &payload);
        self.connection.see_to_outbox(state, true);
    }
}

fn bad_value(error: &ValueError) -> RemoteError {
    RemoteError::new("bad_value", error.to_string())
}

/// A `HOST_ERROR`; of one that is too long, its beginning.
fn error(id: u64, error: &RemoteError, max_frame: usize) -> (Kind, Encoded) {
    let encode = |error: &RemoteError| Encoded::encode(&(id, error)).ok();
    let whole = encode(error).filter(|whole| whole.payload_len() <= max_frame);
    let payload = whole.or_else(|| {
        let beginning = error.message.chars().take(max_frame / 16).collect::<String>();
        encode(&RemoteError::new(&error.kind, format!("{beginning}…")))
    });
    (Kind::HostError, payload.unwrap_or_else(Encoded::nil))
}
