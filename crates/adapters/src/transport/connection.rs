//! One worker's socket: the calls that it holds, what is to be written, and who writes it.
//!
//! No task stands between a caller and the socket. A call that finds the worker idle is written by its caller; one that
//! finds it busy is left for the writer's task, which gathers what has come meanwhile; what answers bring about is
//! written once, after the last answer of a read. So a single call costs one write and one read, and a thousand calls
//! at a time cost a few.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snakepit_protocol::Outbox;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};

use super::closed::Closed;
use super::frame::FrameKind;
use super::hello::Hello;
use super::reader::{self, ReadyOutcome};
use super::slate::Slate;
use crate::adapter::host_tools::HostTools;
use crate::adapter::{AtEnd, AtWork, Begun, HeldCall, HeldCalls, Starts};
use crate::call::{Call, CallError, CallId, Input, Portion};
use crate::telemetry::{Event, TraceContext};
use crate::value::{Encoded, ValueBuilder, ValueError, write};
use crate::worker::Output;

/// How many results have come of a call that is many calls.
pub(super) type Results = usize;

// A call is moved a dozen times on its way there and back; beyond 256 bytes, with its number in the table, a move costs
// twice as much. What few calls have belongs behind a pointer.
const _: () = assert!(size_of::<(u64, HeldCall<Results>)>() <= 256);

pub(super) struct ConnectionState {
    pub(super) calls: HeldCalls<Results>,
    pub(super) tools: HostTools,
    /// How many tool calls were refused since the last write.
    pub(super) refusals: usize,
    /// What the worker told about itself in what is being read.
    pub(super) told: Vec<Event>,
    pub(super) outbox: Outbox,
    /// What could not be written yet.
    stuck: Option<Outbox>,
    /// Memory of the last write, for the next.
    spare: Outbox,
    writer: WriterState,
    /// Somebody waits until the outbox is taken.
    pub(super) wants_room: bool,
    /// Who waits for the first answer.
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

/// Who sees to the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WriterState {
    #[default]
    Nobody,
    /// The writer's task was woken and will look.
    Called,
    /// Answers are being worked off; what they bring about is written after the last one.
    Reader,
    /// Somebody is writing, and looks again afterwards.
    Writing,
}

/// See the module.
pub(crate) struct Connection {
    socket: OwnedWriteHalf,
    state: Mutex<ConnectionState>,
    wake_writer: Notify,
    /// The outbox was taken, and somebody waited for it.
    pub(super) room: Notify,
    closed: Closed,
    slate: Slate,
    /// How many calls the worker does at the same time.
    concurrency: usize,
    pub(super) output: Arc<Output>,
    pub(super) max_frame: usize,
}

impl Connection {
    /// Greets the worker. The receiver hears its first answer.
    pub(crate) fn open(
        socket: std::os::unix::net::UnixStream,
        slate: Slate,
        output: Arc<Output>,
        hello: &Hello,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<ReadyOutcome>)> {
        socket.set_nonblocking(true)?;
        let (reader, socket) = tokio::net::UnixStream::from_std(socket)?.into_split();
        let (ready, first_answer) = oneshot::channel();
        let mut state = ConnectionState::new(hello.concurrency, ready);
        let greeting = Encoded::encode(hello).map_err(io::Error::other)?;
        state.outbox.value_frame(FrameKind::Hello, 0, &greeting);
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

    fn start_tasks(self: &Arc<Self>, reader: OwnedReadHalf) {
        // Both tasks end with the connection: the reader at the end of the socket, the writer when it is told of that.
        let writer = tokio::spawn(Arc::clone(self).write_what_is_left()).abort_handle();
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let reason = reader::read(&connection, reader).await;
            writer.abort();
            connection.close(&reason);
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
            Begun::ToSend(held) => write_call(&mut state.outbox, &held.call),
            // A worker that broke the protocol still lives, and still reads.
            Begun::Kept => return,
            Begun::Refused(call) => {
                // It was chosen for this worker before the worker's end was known.
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
            // Its caller went away before it was here, and could not ask the worker.
            state.outbox.frame(FrameKind::Cancel, number, |out| write::uint(out, 1));
        }
        let alone = state.calls.len() == 1;
        self.see_to_outbox(guard, alone);
    }

    /// Asks the worker to end a call: 1 asks, 2 interrupts.
    pub(crate) fn cancel(&self, call: CallId, stage: u64) {
        self.tell_about(call, FrameKind::Cancel, |out| write::uint(out, stage));
    }

    /// Lets a stream send so much more.
    pub(crate) fn grant(&self, call: CallId, more: Portion) {
        self.tell_about(call, FrameKind::Credit, |out| write_portion(out, more));
    }

    /// Sends a frame about a call, if the worker still has it.
    fn tell_about(&self, call: CallId, kind: FrameKind, payload: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if state.calls.holds(call.get()) {
            state.outbox.frame(kind, call.get(), payload);
            self.see_to_outbox(state, true);
        }
    }

    pub(super) fn send(&self, kind: FrameKind, call: u64, value: &Encoded) {
        let mut state = self.state();
        state.outbox.value_frame(kind, call, value);
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

    /// Writes what there is, as far as the socket takes it.
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

    /// Whether everything is written. An error counts as written: the reader sees the same and closes.
    fn write(&self, batch: &mut Outbox) -> bool {
        while !batch.is_empty() {
            match batch.write_with(|pieces| self.socket.try_write_vectored(pieces)) {
                Ok(written) => batch.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
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
                    // Whoever else is about to run may have something for the same write.
                    tokio::task::yield_now().await;
                }
                Some(mut batch) => {
                    while !self.write(&mut batch) {
                        if self.socket.writable().await.is_err() {
                            return;
                        }
                    }
                    self.state().writer = WriterState::Nobody;
                }
            }
            self.flush();
        }
    }

    /// From here on, what is sent waits for [`Connection::end_reading`].
    pub(super) fn begin_reading(state: &mut ConnectionState) {
        if state.writer != WriterState::Writing {
            state.writer = WriterState::Reader;
        }
    }

    /// All answers of a read are worked off.
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

    /// The answer to a call has come: takes the call, and whatever runs for it.
    pub(super) fn take(state: &mut ConnectionState, call: u64) -> Option<HeldCall<Results>> {
        let held = state.calls.take(call)?;
        state.tools.end_of(call);
        Some(held)
    }

    /// The worker can no longer be spoken to.
    fn close(&self, reason: &str) {
        self.state().calls.close();
        self.closed.close(reason);
    }

    /// Until it can no longer be spoken to; why.
    pub(crate) async fn closed(&self) -> Arc<str> {
        self.closed.reason().await
    }

    /// Asks the worker to finish and to go. It is given no more calls.
    pub(crate) fn drain(&self) {
        let mut state = self.state();
        state.calls.leave();
        state.outbox.frame(FrameKind::Drain, 0, |_| {});
        self.see_to_outbox(state, true);
    }

    /// Whether the worker has calls that are not answered.
    pub(crate) fn holds_calls(&self) -> bool {
        !self.state().calls.is_empty()
    }

    /// The calls that the worker is most likely doing now, in the order in which they were sent.
    pub(crate) fn at_work(&self) -> Vec<AtWork> {
        self.state().calls.at_work()
    }

    /// How often the worker answered when it was asked to beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        self.slate.beats()
    }

    /// The calls that the worker has not started by now, if it keeps a slate.
    pub(crate) fn not_begun(&self) -> Vec<CallId> {
        let mut state = self.state();
        let Ok(started) = self.slate.started() else { return Vec::new() };
        state.calls.started(started.call);
        state.calls.not_begun(Starts::Known)
    }

    /// Gives up all calls: those that were surely not started go back to the pool, the others are lost. `starts` says whether the slate
    /// tells which calls were started, now and for ever.
    pub(crate) fn give_up(&self, starts: Starts) {
        let started = match starts {
            Starts::Known => self.slate.started().ok(),
            Starts::Unknown => None,
        };
        let mut state = self.state();
        state.tools.end_all();
        // What goes to another worker is never written here.
        state.outbox.clear();
        if let Some(started) = started {
            state.calls.started(started.call);
        }
        let ended = state.calls.end(if started.is_some() { Starts::Known } else { Starts::Unknown });
        drop(state);
        for (at_end, held) in ended {
            match at_end {
                AtEnd::GiveBack | AtEnd::Conclude => held.settle(at_end),
                AtEnd::Lose => self.slate.lose(held, started, self.concurrency),
            }
        }
    }
}

/// Writes a CALL or CALLS. A call that cannot be written (its bodies together are too long) leaves no trace.
fn write_call(outbox: &mut Outbox, call: &Call) -> Result<(), ValueError> {
    let (kind, plain) = match call.input() {
        Input::One(args) => (FrameKind::Call, !args.has_bodies()),
        Input::Many(inputs) => (FrameKind::Calls, inputs.iter().all(|args| !args.has_bodies())),
    };
    if plain {
        outbox.frame(kind, call.id().get(), |out| {
            write_call_head(out, call);
            match call.input() {
                Input::One(args) => out.extend_from_slice(args.head()),
                Input::Many(inputs) => {
                    write::array_header(out, inputs.len() as u32);
                    for args in inputs {
                        out.extend_from_slice(args.head());
                    }
                }
            }
            write_call_tail(out, call);
        });
        return Ok(());
    }
    let mut builder = ValueBuilder::default();
    write_call_head(&mut builder.head, call);
    match call.input() {
        Input::One(args) => builder.encoded(args)?,
        Input::Many(inputs) => {
            write::array_header(&mut builder.head, inputs.len() as u32);
            inputs.iter().try_for_each(|args| builder.encoded(args))?;
        }
    }
    write_call_tail(&mut builder.head, call);
    outbox.value_frame(kind, call.id().get(), &builder.finish());
    Ok(())
}

fn write_call_head(out: &mut Vec<u8>, call: &Call) {
    write::array_header(out, if call.has_options() { 4 } else { 3 });
    write::str(out, call.command());
}

fn write_call_tail(out: &mut Vec<u8>, call: &Call) {
    match call.remaining() {
        None => write::nil(out),
        Some(remaining) => write::uint(out, u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)),
    }
    if !call.has_options() {
        return;
    }
    let nested = call.chain().and_then(|chain| chain.parent());
    let metadata = call.metadata().count();
    let (stream, session, trace, traces) =
        (call.stream_credit(), call.session(), call.trace(), call.traces());
    let entries = [
        stream.is_some(),
        session.is_some(),
        metadata > 0,
        nested.is_some(),
        trace.is_some(),
        !traces.is_empty(),
    ];
    write::map_header(out, entries.into_iter().map(u32::from).sum());
    if let Some(credit) = stream {
        write::str(out, "stream");
        write_portion(out, credit);
    }
    if let Some(session) = session {
        write::str(out, "session");
        write::str(out, session);
    }
    if metadata > 0 {
        write::str(out, "metadata");
        write::map_header(out, metadata as u32);
        for (key, value) in call.metadata() {
            write::str(out, key);
            write::str(out, value);
        }
    }
    if let Some(parent) = nested {
        write::str(out, "nested");
        write::uint(out, parent.get());
    }
    if let Some(trace) = trace {
        write::str(out, "trace");
        write_trace(out, trace);
    }
    if !traces.is_empty() {
        write::str(out, "traces");
        write::array_header(out, traces.len() as u32);
        for trace in traces {
            match trace {
                Some(trace) => write_trace(out, trace),
                None => write::nil(out),
            }
        }
    }
}

/// `[traceparent]` or `[traceparent, tracestate]`.
fn write_trace(out: &mut Vec<u8>, trace: &TraceContext) {
    let state = trace.tracestate();
    write::array_header(out, if state.is_some() { 2 } else { 1 });
    write::str(out, trace.traceparent());
    if let Some(state) = state {
        write::str(out, state);
    }
}

/// `[items, bytes]`, as credit is told.
fn write_portion(out: &mut Vec<u8>, portion: Portion) {
    write::array_header(out, 2);
    write::uint(out, portion.items.into());
    write::uint(out, portion.bytes);
}
