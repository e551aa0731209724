//! One worker's socket: the calls that the worker holds, the frames to write, and who writes them.
//!
//! No task stands between a caller and the socket. If the worker is idle, the caller itself writes the call. If the
//! worker is busy, the call is left to the writer task, which writes all calls that have gathered. Frames that
//! answers cause are written once, after the last answer of a read. A single call therefore costs one write and one
//! read, and a thousand concurrent calls cost a few.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snakepit_protocol::Outbox;
use snakepit_protocol::message::{CallMessage, CallMessageOptions, Hello, HostMessage, TraceTexts};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

use super::closed::Closed;
use super::reader::{self, ReadyOutcome};
use super::slate::Slate;
use crate::adapter::host_tools::HostTools;
use crate::adapter::{
    AtWork, CallAdmission, CallSettlement, HeldCall, HeldCalls, ProtocolFault, StartKnowledge,
};
use crate::call::{Call, CallError, CallId, Portion};
use crate::telemetry::{Event, TraceContext};
use crate::value::ValueError;
use crate::worker::Output;

mod end;

/// The number of results that have arrived for a CALLS.
pub(super) type Results = usize;

// A call is moved a dozen times on its way there and back. Above 256 bytes, including its number in the table, a move
// costs twice as much. Data that few calls have belongs behind a pointer.
const _: () = assert!(size_of::<(u64, HeldCall<Results>)>() <= 256);

pub(super) struct ConnectionState {
    pub(super) calls: HeldCalls<Results>,
    pub(super) tools: HostTools,
    /// The number of tool calls refused since the last write.
    pub(super) refusals: usize,
    /// The events that the worker reported in the current read.
    pub(super) told: Vec<Event>,
    pub(super) outbox: Outbox,
    /// A batch that is not completely written yet.
    stuck: Option<Outbox>,
    /// The memory of the last batch, for reuse.
    spare: Outbox,
    writer: WriterState,
    /// Whether a tool waits until the outbox is taken.
    pub(super) wants_room: bool,
    /// Receives the worker's first answer.
    pub(super) ready: Option<oneshot::Sender<ReadyOutcome>>,
}

impl ConnectionState {
    fn new(concurrency: usize, ready: oneshot::Sender<ReadyOutcome>) -> Self {
        Self {
            calls: HeldCalls::new(concurrency),
            tools: HostTools::default(),
            refusals: 0,
            told: Vec::new(),
            outbox: Outbox::default(),
            stuck: None,
            spare: Outbox::default(),
            writer: WriterState::default(),
            wants_room: false,
            ready: Some(ready),
        }
    }
}

/// Who writes the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WriterState {
    #[default]
    Nobody,
    /// The writer task was woken and will check the outbox.
    Called,
    /// The reader handles answers. What they cause is written after the last one.
    Reader,
    /// A thread is writing, and checks the outbox again afterwards.
    Writing,
}

/// A connection to one worker.
pub(crate) struct Connection {
    socket: UnixStream,
    state: Mutex<ConnectionState>,
    wake_writer: Notify,
    /// Notified when the outbox is taken, if a tool waits for that.
    pub(super) room: Notify,
    closed: Closed,
    slate: Slate,
    /// The number of calls that the worker runs at the same time.
    concurrency: usize,
    pub(super) output: Arc<Output>,
    pub(super) max_frame: usize,
}

impl Connection {
    /// Opens the connection and greets the worker. The receiver gets the worker's first answer.
    pub(crate) fn open(
        socket: UnixStream,
        slate: Slate,
        output: Arc<Output>,
        hello: &Hello<'_>,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<ReadyOutcome>)> {
        socket.set_nonblocking(true)?;
        let reader = pipe::Receiver::from_owned_fd_unchecked(socket.try_clone()?.into())?;
        let (ready, first_answer) = oneshot::channel();
        let mut state = ConnectionState::new(hello.concurrency, ready);
        hello.write(&mut state.outbox).map_err(io::Error::other)?;
        let connection = Arc::new(Self {
            socket,
            state: Mutex::new(state),
            wake_writer: Notify::new(),
            room: Notify::new(),
            closed: Closed::default(),
            slate,
            concurrency: hello.concurrency,
            output,
            max_frame: hello.max_frame,
        });
        connection.flush();
        connection.start_tasks(reader);
        Ok((connection, first_answer))
    }

    fn start_tasks(self: &Arc<Self>, reader: pipe::Receiver) {
        // Both tasks end with the connection: the reader at the end of the socket, the writer when the reader has
        // ended.
        let writer = tokio::spawn(Arc::clone(self).write_what_is_left()).abort_handle();
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let fault = reader::read(&connection, reader).await;
            writer.abort();
            connection.close(fault);
        });
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call.
    pub(crate) fn execute(&self, call: Call) {
        let mut guard = self.state();
        let state = &mut *guard;
        let (number, is_abandoned) = (call.id().get(), call.is_abandoned());
        let written = match state.calls.begin(call, 0) {
            CallAdmission::ToSend(held) => write_call(&mut state.outbox, &held.call),
            // A worker that broke the protocol may still run and read, so nothing is written.
            CallAdmission::Kept => return,
            CallAdmission::Refused(call) => {
                // The call was assigned to this worker before the worker's end was known.
                drop(guard);
                return call.give_back();
            }
        };
        if let Err(source) = written {
            let unsendable = state.calls.take(number);
            drop(guard);
            if let Some(HeldCall { call, .. }) = unsendable {
                let command = call.command().to_owned();
                call.fail(CallError::Arguments { command, source });
            }
            return;
        }
        if is_abandoned {
            // The caller abandoned the call before it arrived here, when the worker could not be asked to cancel it.
            HostMessage::Cancel(1).write(&mut state.outbox, number);
        }
        let alone = state.calls.len() == 1;
        self.see_to_outbox(guard, alone);
    }

    /// Asks the worker to end a call. Stage 1 asks; stage 2 interrupts.
    pub(crate) fn cancel(&self, call: CallId, stage: u64) {
        self.tell_about(call, HostMessage::Cancel(stage));
    }

    /// Adds to the credit of a stream.
    pub(crate) fn grant(&self, call: CallId, more: Portion) {
        self.tell_about(call, HostMessage::Credit(more.items, more.bytes));
    }

    /// Sends a message about a call, if the worker still holds the call.
    fn tell_about(&self, call: CallId, message: HostMessage<'_>) {
        let mut state = self.state();
        if state.calls.holds(call.get()) {
            message.write(&mut state.outbox, call.get());
            self.see_to_outbox(state, true);
        }
    }

    /// Sends a message that is about no call.
    pub(super) fn send(&self, message: HostMessage<'_>) {
        let mut state = self.state();
        message.write(&mut state.outbox, 0);
        self.see_to_outbox(state, true);
    }

    pub(super) fn see_to_outbox(&self, mut state: MutexGuard<'_, ConnectionState>, at_once: bool) {
        match state.writer {
            WriterState::Called | WriterState::Reader | WriterState::Writing => {}
            WriterState::Nobody if at_once => {
                drop(state);
                self.flush();
            }
            WriterState::Nobody => {
                state.writer = WriterState::Called;
                drop(state);
                self.wake_writer.notify_one();
            }
        }
    }

    /// Writes as much of the outbox as the socket accepts.
    pub(super) fn flush(&self) {
        loop {
            let mut state = self.state();
            if state.outbox.is_empty() || state.writer == WriterState::Writing {
                if state.writer != WriterState::Writing {
                    state.writer = WriterState::Nobody;
                }
                return;
            }
            state.writer = WriterState::Writing;
            state.calls.all_sent();
            let spare = std::mem::take(&mut state.spare);
            let mut batch = std::mem::replace(&mut state.outbox, spare);
            let wants_room = std::mem::take(&mut state.wants_room);
            state.refusals = 0;
            drop(state);
            if wants_room {
                self.room.notify_waiters();
            }
            let complete = self.write(&mut batch);
            let mut state = self.state();
            if complete {
                batch.clear();
                state.spare = batch;
                state.writer = WriterState::Nobody;
            } else {
                state.stuck = Some(batch);
                drop(state);
                self.wake_writer.notify_one();
                return;
            }
        }
    }

    /// Writes a batch. Returns whether it is complete. An error counts as complete, because the reader sees the same
    /// error and closes the connection.
    fn write(&self, batch: &mut Outbox) -> bool {
        while !batch.is_empty() {
            match batch.write_with(|pieces| (&self.socket).write_vectored(pieces)) {
                Ok(written) => batch.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        true
    }

    async fn write_what_is_left(self: Arc<Self>) {
        loop {
            self.wake_writer.notified().await;
            let stuck = self.state().stuck.take();
            match stuck {
                None => {
                    // Other tasks that are about to run may add to the same write.
                    tokio::task::yield_now().await;
                }
                Some(mut batch) => {
                    while !self.write(&mut batch) {
                        if self.writable().await.is_err() {
                            return;
                        }
                    }
                    self.state().writer = WriterState::Nobody;
                }
            }
            self.flush();
        }
    }

    /// Waits until the worker has read some of what was written.
    ///
    /// The socket is registered for that only now: otherwise each message that the worker takes would wake this process.
    async fn writable(&self) -> io::Result<()> {
        pipe::Sender::from_owned_fd_unchecked(self.socket.try_clone()?.into())?.writable().await
    }

    /// Delays writing until [`Connection::end_reading`].
    pub(super) fn begin_reading(state: &mut ConnectionState) {
        if state.writer != WriterState::Writing {
            state.writer = WriterState::Reader;
        }
    }

    /// Writes what the answers of a read have caused.
    pub(super) fn end_reading(&self) {
        let mut state = self.state();
        if state.writer == WriterState::Reader {
            state.writer = WriterState::Nobody;
            let empty = state.outbox.is_empty();
            drop(state);
            if !empty {
                self.flush();
            }
        }
    }

    /// Takes a call whose answer has arrived, and ends its tool runs.
    pub(super) fn take(state: &mut ConnectionState, call: u64) -> Option<HeldCall<Results>> {
        let held = state.calls.take(call)?;
        state.tools.end_of(call);
        Some(held)
    }
}

/// Writes a CALL or CALLS. If that fails because its bodies together are too long, the outbox is unchanged.
fn write_call(outbox: &mut Outbox, call: &Call) -> Result<(), ValueError> {
    let message = CallMessage {
        command: call.command(),
        args: call.input(),
        remaining: call.remaining(),
        options: call.has_options().then(|| CallMessageOptions {
            stream: call.stream_credit().map(|credit| (credit.items, credit.bytes)),
            session: call.session(),
            metadata: call.metadata(),
            nested: call.chain().and_then(|chain| chain.parent()).map(CallId::get),
            trace: call.trace().map(texts_of),
            traces: call.traces().iter().map(|trace| trace.as_deref().map(texts_of)),
        }),
    };
    message.write(outbox, call.id().get())
}

fn texts_of(trace: &TraceContext) -> TraceTexts<'_> {
    TraceTexts { parent: trace.traceparent(), state: trace.tracestate() }
}
