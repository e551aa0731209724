//! The dispatcher of host tools: runs the tools that one worker calls, and sends the answers as fast as the worker
//! takes them.
//!
//! Everything is bounded, whatever the worker does: the number of tool calls under way, the bytes of their requests,
//! and the answers that wait to be sent. While there is no room for an answer, it is not sent and its tool call stays
//! under way. The credit of a stream protects the worker. The host is protected because the next item is not made
//! before there is room for it.
//!
//! Knows no protocol: a [`ToolLink`] carries the answers.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::task::AbortHandle;

use super::{Credit, IdMap, ProtocolFault};
use crate::call::{Portion, RemoteError, RemoteErrorKind};
use crate::tool::ToolAnswer;
use crate::value::ValueError;
pub use snakepit_protocol::message::ToolReply;

/// The highest number of tool calls of one worker that may be under way. `spec/wire.md` names it.
pub const MOST_TOOL_CALLS: usize = 1024;
/// The most bytes that their requests may have together, unless `max_frame` is more.
const MOST_BYTES: usize = 16 << 20;

/// The way in which the answers of tools reach a worker.
pub trait ToolLink: Send + Sync + 'static {
    /// An encoded answer.
    type Frame: Send;

    /// Returns the size of the largest answer that the worker takes.
    fn max_frame(&self) -> usize;

    /// Encodes an answer. Returns it with its length.
    fn encode(&self, id: u64, reply: &ToolReply) -> Result<(Self::Frame, usize), ValueError>;

    /// Waits until there is room for another answer.
    fn wait_for_room(&self) -> impl Future<Output = ()> + Send;

    /// Sends an answer of this size as soon as there is room for it, if [`HostTools::may_send`] allows it. The check
    /// and the sending are one step: a worker that has read the last answer may reuse the id. Returns whether the tool
    /// call goes on; it does not if its answers are no longer wanted.
    fn deliver(
        &self,
        run: ToolRunId,
        frame: Self::Frame,
        bytes: usize,
        state: ToolRunState,
    ) -> impl Future<Output = ToolRunState> + Send;
}

/// Whether a tool call goes on after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolRunState {
    /// More follows.
    GoesOn,
    /// Nothing follows.
    IsOver,
}

/// The identity of one run of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToolRunId {
    /// The call that uses the tool.
    pub call: u64,
    /// The id that the worker chose.
    pub id: u64,
    /// Distinguishes this run from a later one with the same id.
    number: u64,
}

/// A worker's request for a tool.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[must_use]
pub struct ToolRequest {
    /// The call that uses the tool.
    pub call: u64,
    /// The id that the worker chose.
    pub id: u64,
    /// The size of the request in bytes.
    pub bytes: usize,
    /// The first credit, if the worker takes a stream.
    pub stream: Option<Portion>,
}

impl ToolRequest {
    /// Creates a request of this many bytes that takes one value.
    pub fn new(call: u64, id: u64, bytes: usize) -> Self {
        Self { call, id, bytes, stream: None }
    }

    /// Sets the first credit of a worker that takes a stream. `None` means that it takes one value.
    pub fn stream(mut self, first: Option<Portion>) -> Self {
        self.stream = first;
        self
    }
}

/// The decision whether a tool call may begin.
#[derive(Debug)]
pub enum ToolAdmission {
    /// The tool runs.
    Admitted,
    /// The tool does not run, for the given reason.
    Refused(RemoteError),
}

struct ToolRun {
    call: u64,
    number: u64,
    bytes: usize,
    task: AbortHandle,
    credit: Option<Arc<Credit>>,
}

/// The tools that run for one worker, by the ids that the worker chose.
///
/// `docs/adapters-contract.md` has the other half, a [`ToolLink`].
///
/// ```
/// use std::sync::Arc;
///
/// use snakepit::adapter::ProtocolFault;
/// use snakepit::adapter::host_tools::{HostTools, ToolAdmission, ToolLink, ToolRequest};
/// use snakepit::call::Call;
/// use snakepit::value::Encoded;
///
/// /// Runs the tool `search` for a worker whose call has the number 1.
/// fn search<L: ToolLink>(
///     tools: &mut HostTools,
///     link: &Arc<L>,
///     call: &Call,
///     args: Encoded,
/// ) -> Result<(), ProtocolFault> {
///     let request = ToolRequest::new(1, 7, args.payload_len());
///     if let ToolAdmission::Admitted = tools.admit(request.id, request.bytes, link.max_frame())? {
///         tools.start(link, request, call.ask("search", args));
///     }
///     Ok(())
/// }
/// ```
#[derive(Default)]
pub struct HostTools {
    runs: IdMap<ToolRun>,
    bytes: usize,
    next_number: u64,
}

impl HostTools {
    /// Decides whether another tool call may begin. The error is the fault of the worker.
    pub fn admit(&self, id: u64, bytes: usize, max_frame: usize) -> Result<ToolAdmission, ProtocolFault> {
        if self.runs.contains_key(&id) {
            // The worker would take an error with this id for the answer to its first tool call, so the second one
            // alone cannot be refused.
            return Err(ProtocolFault::ToolIdInUse { id });
        }
        let most_bytes = max_frame.max(MOST_BYTES);
        let reason = if self.runs.len() >= MOST_TOOL_CALLS {
            format!(
                "{MOST_TOOL_CALLS} tool calls of this worker are under way, and no more are allowed at a time"
            )
        } else if self.bytes + bytes > most_bytes {
            format!(
                "the tool calls of this worker that are under way would hold {} bytes, and {most_bytes} is the limit",
                self.bytes + bytes
            )
        } else {
            return Ok(ToolAdmission::Admitted);
        };
        Ok(ToolAdmission::Refused(RemoteError::new(RemoteErrorKind::Refused, reason)))
    }

    /// Runs a tool in a task of its own, and sends its answers.
    pub fn start<L: ToolLink>(
        &mut self,
        link: &Arc<L>,
        asked: ToolRequest,
        answer: impl Future<Output = Result<ToolAnswer, RemoteError>> + Send + 'static,
    ) {
        let ToolRequest { call, id, bytes, stream } = asked;
        self.next_number += 1;
        let number = self.next_number;
        let credit = stream.map(|first| Arc::new(Credit::new(first)));
        let asker =
            Asker { link: Arc::clone(link), run: ToolRunId { call, id, number }, credit: credit.clone() };
        let task = tokio::spawn(async move { asker.pass_on(answer.await).await }).abort_handle();
        self.bytes += bytes;
        self.runs.insert(id, ToolRun { call, number, bytes, task, credit });
    }

    /// Reports whether a run may still send an answer, that is, whether its answers are still wanted. The last answer
    /// ends the run.
    pub fn may_send(&mut self, run: ToolRunId, state: ToolRunState) -> bool {
        let is_under_way = self.runs.get(&run.id).is_some_and(|known| known.number == run.number);
        match state {
            ToolRunState::IsOver if is_under_way => drop(self.remove(run.id)),
            ToolRunState::IsOver | ToolRunState::GoesOn => {}
        }
        is_under_way
    }

    fn remove(&mut self, id: u64) -> Option<ToolRun> {
        let run = self.runs.remove(&id)?;
        self.bytes -= run.bytes;
        Some(run)
    }

    /// Ends a tool whose answer the worker no longer wants.
    pub fn end(&mut self, id: u64) {
        if let Some(run) = self.remove(id) {
            run.task.abort();
        }
    }

    /// Ends all tools of a call that was answered.
    pub fn end_of(&mut self, call: u64) {
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

    /// Ends all tools, because their worker is gone.
    pub fn end_all(&mut self) {
        self.runs.drain().for_each(|(_, run)| run.task.abort());
        self.bytes = 0;
    }

    /// Adds to the credit of a stream.
    pub fn grant(&self, id: u64, more: Portion) {
        if let Some(credit) = self.runs.get(&id).and_then(|run| run.credit.as_ref()) {
            credit.grant(more);
        }
    }
}

/// Encodes an answer that fits, or an error in place of an answer that cannot be sent. Returns `None` if neither can be
/// encoded.
pub fn encode<L: ToolLink>(link: &L, id: u64, reply: &ToolReply) -> Option<(L::Frame, usize, ToolRunState)> {
    let most = link.max_frame();
    let error = match (link.encode(id, reply), reply) {
        (Ok((frame, bytes)), _) if bytes <= most => {
            let state = match reply {
                ToolReply::Item(_) => ToolRunState::GoesOn,
                ToolReply::Value(_) | ToolReply::End | ToolReply::Error(_) => ToolRunState::IsOver,
            };
            return Some((frame, bytes, state));
        }
        // Only the beginning of an error that is too long is sent.
        (_, ToolReply::Error(error)) => {
            let beginning = error.message.chars().take(most / 16).collect::<String>();
            RemoteError::new(error.kind.clone(), format!("{beginning}…"))
        }
        // The worker would refuse a longer answer, and all its calls would be lost.
        (Ok((_, bytes)), ToolReply::Value(_) | ToolReply::Item(_) | ToolReply::End) => RemoteError::new(
            RemoteErrorKind::BadValue,
            format!("the tool's answer is {bytes} bytes long, and max_frame is {most}"),
        ),
        (Err(error), ToolReply::Value(_) | ToolReply::Item(_) | ToolReply::End) => {
            RemoteError::new(RemoteErrorKind::BadValue, error.to_string())
        }
    };
    let (frame, bytes) = link.encode(id, &ToolReply::Error(error)).ok()?;
    Some((frame, bytes, ToolRunState::IsOver))
}

/// Sends the answers of one run of a tool.
struct Asker<L> {
    link: Arc<L>,
    run: ToolRunId,
    /// The credit of a stream.
    credit: Option<Arc<Credit>>,
}

impl<L: ToolLink> Asker<L> {
    async fn pass_on(&self, outcome: Result<ToolAnswer, RemoteError>) {
        let last = match (outcome, &self.credit) {
            (Ok(ToolAnswer::Value(value)), None) => ToolReply::Value(value),
            (Ok(ToolAnswer::Value(value)), Some(_)) => match self.send(ToolReply::Item(value)).await {
                ToolRunState::GoesOn => ToolReply::End,
                ToolRunState::IsOver => return,
            },
            (Ok(ToolAnswer::Stream(_)), None) => ToolReply::Error(RemoteError::new(
                RemoteErrorKind::Streaming,
                "the tool streams: use host.stream",
            )),
            (Ok(ToolAnswer::Stream(mut items)), Some(credit)) => loop {
                credit.available().await;
                self.link.wait_for_room().await;
                match items.next().await {
                    Some(Ok(item)) => match self.send(ToolReply::Item(item)).await {
                        ToolRunState::GoesOn => {}
                        ToolRunState::IsOver => return,
                    },
                    Some(Err(error)) => break ToolReply::Error(error),
                    None => break ToolReply::End,
                }
            },
            (Err(error), _) => ToolReply::Error(error),
        };
        self.send(last).await;
    }

    /// Sends an answer. An item that cannot be sent is replaced by an error, which ends the stream.
    async fn send(&self, reply: ToolReply) -> ToolRunState {
        let Some((frame, bytes, state)) = encode(&*self.link, self.run.id, &reply) else {
            return ToolRunState::IsOver;
        };
        if let Some(credit) = &self.credit {
            credit.spend(bytes);
        }
        self.link.deliver(self.run, frame, bytes, state).await
    }
}
