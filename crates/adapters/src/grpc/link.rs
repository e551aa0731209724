//! Messages beside calls: tools, progress, logs, and the ends of cancelled calls.
//!
//! Tools have the limits of `spec/wire.md`. At most [`ROOM`] bytes of answers wait for the flow control of HTTP/2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Streaming;

use super::calls::GrpcCalls;
use super::messages::{
    self, Cancel, End, Error, FromHost, FromWorker, ToolAnswer, ToolCall, Value, ValueFormat, from_host,
    from_worker, tool_answer,
};
use crate::adapter::host_tools::{
    HostTools, ToolAdmission, ToolLink, ToolReply, ToolRequest, ToolRunId, ToolRunState, encode,
};
use crate::adapter::{ProtocolFault, WorkerChannel};
use crate::call::Portion;
use crate::transport::{beginning, log_text};
use crate::value::{Encoded, ValueError};
use crate::worker::{Output, OutputStream};
use snakepit_protocol::message::PROGRESS_TEXT;

/// The maximum number of bytes of answers that wait to be sent.
const ROOM: u32 = 1 << 20;

/// The overhead of a message, in bytes.
const MESSAGE: usize = 64;

/// A message, and the permit for the room that it takes until it is sent.
type OutgoingMessage = (FromHost, Option<OwnedSemaphorePermit>);

/// The host's side of a link.
pub(super) struct GrpcLink {
    calls: Arc<GrpcCalls>,
    output: Arc<Output>,
    max_frame: usize,
    format: ValueFormat,
    /// `None` once the host has hung up.
    says: Mutex<Option<mpsc::UnboundedSender<OutgoingMessage>>>,
    room: Arc<Semaphore>,
    tools: Mutex<HostTools>,
}

impl GrpcLink {
    /// Returns the link and the stream of messages that the host sends through it.
    pub(super) fn new(
        calls: Arc<GrpcCalls>,
        output: Arc<Output>,
        max_frame: usize,
        format: ValueFormat,
    ) -> (Arc<Self>, impl Stream<Item = FromHost> + Send + 'static) {
        // Bounded by the room for answers and by two cancels for each call that the worker holds.
        let (says, mut said) = mpsc::unbounded_channel::<OutgoingMessage>();
        let link = Self {
            calls,
            output,
            max_frame,
            format,
            says: Mutex::new(Some(says)),
            room: Arc::new(Semaphore::new(ROOM as usize)),
            tools: Mutex::default(),
        };
        let said = stream::poll_fn(move |context| said.poll_recv(context));
        (Arc::new(link), said.map(|(message, _room)| message))
    }

    fn tools(&self) -> MutexGuard<'_, HostTools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, call: u64, said: from_host::Said, room: Option<OwnedSemaphorePermit>) {
        let says = self.says.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(says) = &*says {
            // If the worker is gone, its end is reported elsewhere.
            let _ = says.send((FromHost { call, said: Some(said) }, room));
        }
    }

    /// Tells the worker that the RPC of a call is over. Stage 1 asks the worker to report the end of the call; stage
    /// 2 asks it to interrupt the call.
    pub(super) fn cancel(&self, call: u64, stage: u32) {
        self.say(call, from_host::Said::Cancel(Cancel { stage }), None);
    }

    /// Closes the host's side of the link.
    pub(super) fn hang_up(&self) {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) fn end_tools(&self) {
        self.tools().end_all();
    }

    /// Handles the worker's messages until the link ends. Returns the reason for the end.
    pub(super) async fn listen(self: &Arc<Self>, mut messages: Streaming<FromWorker>) -> ProtocolFault {
        loop {
            match messages.message().await {
                Ok(Some(FromWorker { call, said: Some(said) })) => {
                    if let Err(fault) = self.hear(call, said).await {
                        return fault;
                    }
                    self.calls.heard(call);
                }
                // A message of a later version.
                Ok(Some(FromWorker { said: None, .. })) => {}
                Ok(None) => return ProtocolFault::Closed(WorkerChannel::Link),
                Err(status) => return ProtocolFault::broke(WorkerChannel::Link, status.message()),
            }
        }
    }

    async fn hear(self: &Arc<Self>, call: u64, said: from_worker::Said) -> Result<(), ProtocolFault> {
        match said {
            from_worker::Said::ToolCall(asked) => self.tool_call(call, asked).await?,
            from_worker::Said::ToolCredit(credit) => {
                let more = credit.more.unwrap_or_default();
                self.tools().grant(credit.id, Portion { items: more.items, bytes: more.bytes });
            }
            from_worker::Said::ToolCancel(id) => self.tools().end(id),
            from_worker::Said::Progress(progress) => {
                let text = progress.text.map(|text| beginning(&text, PROGRESS_TEXT).to_owned());
                self.calls.with(call, |call| call.progress(progress.fraction, text));
            }
            from_worker::Said::Log(log) => {
                let fields = log.fields.map(|fields| fields.read(self.format.integers)).transpose();
                let text = fields.and_then(|fields| log_text(&log.level, &log.text, fields.as_ref()));
                let text = text.map_err(ProtocolFault::UnreadableLog)?;
                self.output.text(OutputStream::Log, &text);
            }
            from_worker::Said::Ended(_) => {
                self.tools().end_of(call);
                self.calls.ended(call);
            }
        }
        Ok(())
    }

    /// Ends the tool runs of a call that was answered.
    pub(super) fn end_of(&self, call: u64) {
        self.tools().end_of(call);
    }

    /// Runs a tool beside the link. An error is a protocol violation by the worker.
    async fn tool_call(self: &Arc<Self>, call: u64, asked: ToolCall) -> Result<(), ProtocolFault> {
        let (id, bytes) = (asked.id, messages::len(asked.args.as_ref()));
        let admission = self.tools().admit(id, bytes, self.max_frame)?;
        if let ToolAdmission::Refused(reason) = admission {
            // No other message is read meanwhile, so a worker that keeps asking must read the answers.
            if let Some((answer, bytes, _)) = encode(&**self, id, &ToolReply::Error(reason)) {
                let room = self.room(bytes).await;
                self.answer(call, id, answer, room);
            }
            return Ok(());
        }
        let trace = asked.trace();
        let args = asked.args.map_or_else(|| Ok(Encoded::nil()), |args| args.read(self.format.integers));
        let args = args.map_err(ProtocolFault::UnreadableToolArguments)?;
        let Some(answer) = self.calls.with(call, |call| call.ask_within(&asked.tool, args, trace)) else {
            return Ok(());
        };
        let stream = asked.stream.map(|first| Portion { items: first.items, bytes: first.bytes });
        // The lock is held, so the run finds its own entry, however fast it is.
        self.tools().start(self, ToolRequest::new(call, id, bytes).stream(stream), answer);
        if !self.calls.held().holds(call) {
            // The call was answered in between, and the code that ended its tools did not see this one.
            self.tools().end(id);
        }
        Ok(())
    }

    fn answer(&self, call: u64, id: u64, answer: tool_answer::Answer, room: Option<OwnedSemaphorePermit>) {
        self.say(call, from_host::Said::ToolAnswer(ToolAnswer { id, answer: Some(answer) }), room);
    }

    /// Waits until there is room for this many bytes and the message around them. A request for more than the whole
    /// room takes all of it.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let wanted = u32::try_from(bytes.saturating_add(MESSAGE)).unwrap_or(ROOM).min(ROOM);
        Arc::clone(&self.room).acquire_many_owned(wanted).await.ok()
    }
}

impl ToolLink for GrpcLink {
    type Frame = tool_answer::Answer;

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn encode(&self, _id: u64, reply: &ToolReply) -> Result<(Self::Frame, usize), ValueError> {
        let value = |value: &Encoded| Value::new(value, self.format);
        Ok(match reply {
            ToolReply::Value(answer) => {
                let value = value(answer)?;
                let length = value.data.len();
                (tool_answer::Answer::Value(value), length)
            }
            ToolReply::Item(item) => {
                let value = value(item)?;
                let length = value.data.len();
                (tool_answer::Answer::Item(value), length)
            }
            ToolReply::End => (tool_answer::Answer::End(End {}), 0),
            ToolReply::Error(error) => {
                let error = Error::from(error);
                let length = prost::Message::encoded_len(&error);
                (tool_answer::Answer::Error(error), length)
            }
        })
    }

    async fn wait_for_room(&self) {
        drop(self.room(0).await);
    }

    async fn deliver(
        &self,
        run: ToolRunId,
        answer: Self::Frame,
        bytes: usize,
        state: ToolRunState,
    ) -> ToolRunState {
        let room = self.room(bytes).await;
        let mut tools = self.tools();
        if !tools.may_send(run, state) {
            return ToolRunState::IsOver;
        }
        self.answer(run.call, run.id, answer, room);
        state
    }
}
