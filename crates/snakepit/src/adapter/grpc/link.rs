//! What a worker and its host say to each other beside calls: tools, progress, logs, and when a cancelled call is over.
//!
//! The tools are bounded as those of `spec/wire.md` are. Answers wait for room: what was said and not taken by HTTP/2, whose
//! flow control the worker is behind, is at most [`ROOM`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Streaming;

use super::calls::Calls;
use super::messages::{
    self, Cancel, End, Error, FromHost, FromWorker, ToolAnswer, ToolCall, Value, ValueFormat, from_host,
    from_worker, tool_answer,
};
use crate::call::{Portion, RemoteError};
use crate::tool::ToolAnswer as Answer;
use crate::transport::{Credit, ToolRun, ToolRuns, beginning, log_text};
use crate::value::{Encoded, ValueError};
use crate::worker::Output;

/// So much of a text of progress is told.
const PROGRESS: usize = 8 * 1024;
/// So many bytes of answers may wait to be taken.
const ROOM: u32 = 1 << 20;

/// What a message takes up beside its bytes.
const MESSAGE: usize = 64;

/// A message, and the room that it takes up until it is on its way.
type Said = (FromHost, Option<OwnedSemaphorePermit>);

/// The host's side.
pub(super) struct Link {
    calls: Arc<Calls>,
    output: Arc<Output>,
    max_frame: usize,
    format: ValueFormat,
    /// None once the host has hung up.
    says: Mutex<Option<mpsc::UnboundedSender<Said>>>,
    room: Arc<Semaphore>,
    tools: Mutex<ToolRuns>,
}

impl Link {
    /// The link, and what it says.
    pub(super) fn new(
        calls: Arc<Calls>,
        output: Arc<Output>,
        max_frame: usize,
        format: ValueFormat,
    ) -> (Arc<Self>, impl Stream<Item = FromHost> + Send + 'static) {
        // Bounded by the room that all answers take, and by two cancels for each call that the worker holds.
        let (says, mut said) = mpsc::unbounded_channel::<Said>();
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

    fn tools(&self) -> MutexGuard<'_, ToolRuns> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, call: u64, said: from_host::Said, room: Option<OwnedSemaphorePermit>) {
        let says = self.says.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(says) = &*says {
            // The worker may be gone; then others tell.
            let _ = says.send((FromHost { call, said: Some(said) }, room));
        }
    }

    /// The RPC of a call is over. 1: the worker is to say when the call is; 2: it is to be interrupted.
    pub(super) fn cancel(&self, call: u64, stage: u32) {
        self.say(call, from_host::Said::Cancel(Cancel { stage }), None);
    }

    /// The host is done with the worker.
    pub(super) fn hang_up(&self) {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) fn end_tools(&self) {
        self.tools().end_all();
    }

    /// Hears the worker until it has nothing more to say, and says why that is.
    pub(super) async fn listen(self: &Arc<Self>, mut messages: Streaming<FromWorker>) -> String {
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
                Ok(None) => return "it ended its link".into(),
                Err(status) => return format!("its link broke: {}", status.message()),
            }
        }
    }

    async fn hear(self: &Arc<Self>, call: u64, said: from_worker::Said) -> Result<(), String> {
        match said {
            from_worker::Said::ToolCall(asked) => self.tool_call(call, asked).await?,
            from_worker::Said::ToolCredit(credit) => {
                let more = credit.more.unwrap_or_default();
                self.tools().grant(credit.id, Portion { items: more.items, bytes: more.bytes });
            }
            from_worker::Said::ToolCancel(id) => self.tools().end(id),
            from_worker::Said::Progress(progress) => {
                let text = progress.text.map(|text| beginning(&text, PROGRESS).to_owned());
                self.calls.with(call, |call| call.progress(progress.fraction, text));
            }
            from_worker::Said::Log(log) => {
                let fields = log.fields.map(|fields| fields.read(self.format.integers)).transpose();
                let text = fields.and_then(|fields| log_text(&log.level, &log.text, fields.as_ref()));
                let text = text.map_err(|error| format!("it sent a log that cannot be read: {error}"))?;
                self.output.text("log", &text);
            }
            from_worker::Said::Ended(_) => {
                self.tools().end_of(call);
                self.calls.ended(call);
            }
        }
        Ok(())
    }

    /// A call was answered: nothing runs for it any more.
    pub(super) fn end_of(&self, call: u64) {
        self.tools().end_of(call);
    }

    /// Runs a tool beside the link. The error is the fault of the worker.
    async fn tool_call(self: &Arc<Self>, call: u64, asked: ToolCall) -> Result<(), String> {
        let (id, bytes) = (asked.id, messages::len(asked.args.as_ref()));
        if self.tools().has(id) {
            return Err(format!(
                "it asked for a tool with the id {id}, which it uses for another one under way"
            ));
        }
        let full = self.tools().is_full(bytes, self.max_frame);
        if let Some(reason) = full {
            // Nothing else is heard meanwhile: one that asks on and on must read what it is answered.
            self.send_error(call, id, &RemoteError::new("refused", reason)).await;
            return Ok(());
        }
        let trace = asked.trace();
        let args = asked.args.map_or_else(|| Ok(Encoded::nil()), |args| args.read(self.format.integers));
        let args = args.map_err(|error| format!("it asked for a tool with what cannot be read: {error}"))?;
        let Some(answer) = self.calls.with(call, |call| call.ask_within(&asked.tool, args, trace)) else {
            return Ok(());
        };
        let credit = asked
            .stream
            .map(|first| Arc::new(Credit::new(Portion { items: first.items, bytes: first.bytes })));
        {
            // Under the lock: it finds itself among them, however quick it is.
            let mut tools = self.tools();
            let number = tools.number();
            let asker = Asker { link: Arc::clone(self), call, id, number, credit: credit.clone() };
            let task = tokio::spawn(async move { asker.pass_on(answer.await).await }).abort_handle();
            tools.add(id, ToolRun { call, number, bytes, task, credit });
        }
        if !self.calls.holds(call) {
            // It was answered in between, and whoever saw to its tools did not see this one.
            self.tools().end(id);
        }
        Ok(())
    }

    async fn send_error(&self, call: u64, id: u64, error: &RemoteError) {
        let error = shortened(error, self.max_frame);
        let bytes = error.message.len() + error.traceback.as_ref().map_or(0, String::len);
        let room = self.room(bytes).await;
        self.answer(call, id, tool_answer::Answer::Error(error), room);
    }

    fn answer(&self, call: u64, id: u64, answer: tool_answer::Answer, room: Option<OwnedSemaphorePermit>) {
        self.say(call, from_host::Said::ToolAnswer(ToolAnswer { id, answer: Some(answer) }), room);
    }

    /// Until there is room for so many bytes, and the message around them. More than there is room for at all takes all of it.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let wanted = u32::try_from(bytes.saturating_add(MESSAGE)).unwrap_or(ROOM).min(ROOM);
        Arc::clone(&self.room).acquire_many_owned(wanted).await.ok()
    }
}

/// Who waits for a tool at the worker.
struct Asker {
    link: Arc<Link>,
    call: u64,
    id: u64,
    number: u64,
    /// Of a stream.
    credit: Option<Arc<Credit>>,
}

impl Asker {
    async fn pass_on(&self, outcome: Result<Answer, RemoteError>) {
        let ended = match (outcome, &self.credit) {
            (Ok(Answer::Value(value)), None) => self.send(&value, tool_answer::Answer::Value).await,
            (Ok(Answer::Value(value)), Some(_)) => {
                self.send(&value, tool_answer::Answer::Item).await.and(Err(None))
            }
            (Ok(Answer::Stream(_)), None) => {
                Err(Some(RemoteError::new("streaming", "the tool streams: use host.stream")))
            }
            (Ok(Answer::Stream(mut items)), Some(credit)) => loop {
                credit.some().await;
                match items.next().await {
                    Some(Ok(item)) => {
                        credit.spend(item.payload_len());
                        if let Err(end) = self.send(&item, tool_answer::Answer::Item).await {
                            break Err(end);
                        }
                    }
                    Some(Err(error)) => break Err(Some(error)),
                    None => break Err(None),
                }
            },
            (Err(error), _) => Err(Some(error)),
        };
        // Before the last answer: whoever has read that may use the id again.
        self.link.tools().forget(self.id, self.number);
        match ended {
            Ok(()) => {}
            Err(None) => {
                let room = self.link.room(0).await;
                self.link.answer(self.call, self.id, tool_answer::Answer::End(End {}), room);
            }
            Err(Some(error)) => self.link.send_error(self.call, self.id, &error).await,
        }
    }

    /// Sends a value; the error is why it cannot be sent.
    async fn send(
        &self,
        value: &Encoded,
        answer: impl FnOnce(Value) -> tool_answer::Answer,
    ) -> Result<(), Option<RemoteError>> {
        let link = &self.link;
        let bad = |error: ValueError| Some(RemoteError::new("bad_value", error.to_string()));
        let value = Value::new(value, link.format).map_err(bad)?;
        let (length, most) = (value.data.len(), link.max_frame);
        if length > most {
            let message = format!("the tool's answer is {length} bytes long, and max_frame is {most}");
            return Err(Some(RemoteError::new("bad_value", message)));
        }
        let room = link.room(length).await;
        if self.credit.is_none() {
            link.tools().forget(self.id, self.number);
        }
        link.answer(self.call, self.id, answer(value), room);
        Ok(())
    }
}

/// An error; of one that is too long, its beginning.
fn shortened(error: &RemoteError, max_frame: usize) -> Error {
    let whole = Error::from(error);
    if prost::Message::encoded_len(&whole) <= max_frame {
        return whole;
    }
    let beginning = error.message.chars().take(max_frame / 16).collect::<String>();
    Error { kind: error.kind.clone(), message: format!("{beginning}…"), ..Error::default() }
}
