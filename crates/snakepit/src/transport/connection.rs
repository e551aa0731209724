//! One worker's socket: the calls that it holds, what is to be written, and who writes it.
//!
//! No task stands between a caller and the socket. A call that finds the worker idle is written by its caller; one that
//! finds it busy is left for the writer's task, which gathers what has come meanwhile; what answers bring about is
//! written once, after the last answer of a read. So a single call costs one write and one read, and a thousand calls
//! at a time cost a few.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::by_number::ByNumber;
use super::closed::Closed;
use super::frame::Kind;
use super::messages::{self, Hello, ReadyMessage};
use super::outbox::Outbox;
use super::reader;
use super::slate::{Slate, Started};
use super::tools::Tools;
use crate::adapter::AtWork;
use crate::call::{Call, CallError, CallId, Input, Portion, RemoteError};
use crate::telemetry::Event;
use crate::value::{Encoded, write};
use crate::worker::Output;

/// While more than this waits to be written, what tools have for the worker waits to become frames.
const ROOM: usize = 1024 * 1024;

/// What a worker's first answer was.
#[derive(Debug)]
pub(crate) enum Ready {
    /// It is ready.
    Yes(ReadyMessage),
    /// Its code could not be loaded.
    Failed(RemoteError),
}

/// Whether the slate says which calls were started, now and for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LastWord {
    /// The worker keeps it, and is gone: nothing is started any more.
    Spoken,
    /// The worker keeps none, or may live: what it was sent may have been started, or may yet be.
    Unspoken,
}

/// A call that the worker holds.
pub(super) struct Held {
    pub(super) call: Call,
    /// How many of its results have come, if it is many calls.
    pub(super) results: usize,
    /// Its turn among all that were sent: calls are started in this order.
    turn: u64,
    /// When it was sent; not noted for a worker that does one call at a time, which is at work since its last answer.
    sent: Option<Instant>,
    /// The connection was closed already: it was not written and never will be.
    unsent: bool,
    /// It streams its answer, and the caller asked for none: it is cancelled, and its end is an error.
    pub(super) streams_unasked: bool,
}

// A call is moved a dozen times on its way there and back; beyond 256 bytes, with its number in the table, a move costs
// twice as much. What few calls have belongs behind a pointer.
const _: () = assert!(size_of::<(u64, Held)>() <= 256);

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: ByNumber<Held>,
    pub(super) tools: Tools,
    /// What the worker told about itself in what is being read.
    pub(super) told: Vec<Event>,
    pub(super) outbox: Outbox,
    /// What could not be written yet.
    stuck: Option<Outbox>,
    /// Memory of the last write, for the next.
    spare: Outbox,
    writer: Writer,
    /// Somebody waits until the outbox is taken.
    wants_room: bool,
    next_turn: u64,
    /// The latest turn that was handed to the socket, at least in part.
    begun: u64,
    /// The latest turn that was answered, if only in part.
    answered: u64,
    /// Since when the worker has had something to do that it has not answered.
    pub(super) busy_since: Option<Instant>,
    /// Who waits for the first answer.
    pub(super) ready: Option<oneshot::Sender<Ready>>,
    closed: bool,
    /// The worker is about to end, and takes no more calls.
    leaving: bool,
}

impl State {
    /// The latest turn that was started.
    fn last_turn(&self, started: Started) -> u64 {
        let turn = self.calls.get(&started.call).map_or(0, |held| held.turn);
        turn.max(self.answered)
    }
}

/// Who sees to the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Writer {
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
    state: Mutex<State>,
    wake_writer: Notify,
    /// The outbox was taken, and somebody waited for it.
    room: Notify,
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
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<Ready>)> {
        socket.set_nonblocking(true)?;
        let (reader, socket) = tokio::net::UnixStream::from_std(socket)?.into_split();
        let (ready, first_answer) = oneshot::channel();
        let mut state = State { ready: Some(ready), ..State::default() };
        let greeting = Encoded::encode(hello).map_err(io::Error::other)?;
        state.outbox.value_frame(Kind::Hello, 0, &greeting);
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call.
    pub(crate) fn execute(&self, call: Call) {
        let mut state = self.state();
        if state.leaving {
            // It was chosen for this worker before the worker's end was known.
            drop(state);
            call.give_back();
            return;
        }
        let id = call.id().get();
        if state.closed {
            // A worker that broke the protocol still lives, and still reads. Kept until its end is known: the pool does
            // not know yet, and would choose it again.
            state.next_turn += 1;
            let turn = state.next_turn;
            let held = Held { call, results: 0, turn, sent: None, unsent: true, streams_unasked: false };
            state.calls.insert(id, held);
            return;
        }
        if let Err(source) = messages::write_call(&mut state.outbox, &call) {
            drop(state);
            let command = call.command().to_owned();
            call.fail(CallError::Arguments { command, source });
            return;
        }
        let starts_work = state.calls.is_empty();
        let sent = (starts_work || self.concurrency > 1).then(Instant::now);
        if starts_work {
            state.busy_since = sent;
        }
        state.next_turn += 1;
        if call.is_abandoned() {
            // Its caller went away before it was here, and could not ask the worker.
            state.outbox.frame(Kind::Cancel, id, |out| write::uint(out, 1));
        }
        let turn = state.next_turn;
        let held = Held { call, results: 0, turn, sent, unsent: false, streams_unasked: false };
        state.calls.insert(id, held);
        let alone = state.calls.len() == 1;
        self.see_to_outbox(state, alone);
    }

    /// Asks the worker to end a call: 1 asks, 2 interrupts.
    pub(crate) fn cancel(&self, call: CallId, stage: u64) {
        self.tell_about(call, Kind::Cancel, |out| write::uint(out, stage));
    }

    /// Lets a stream send so much more.
    pub(crate) fn grant(&self, call: CallId, more: Portion) {
        self.tell_about(call, Kind::Credit, |out| messages::write_portion(out, more));
    }

    /// Sends a frame about a call, if the worker still has it.
    fn tell_about(&self, call: CallId, kind: Kind, payload: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if state.calls.contains_key(&call.get()) {
            state.outbox.frame(kind, call.get(), payload);
            self.see_to_outbox(state, true);
        }
    }

    pub(super) fn send(&self, kind: Kind, call: u64, value: &Encoded) {
        let mut state = self.state();
        state.outbox.value_frame(kind, call, value);
        self.see_to_outbox(state, true);
    }

    /// The state, as soon as little enough waits to be written for a tool to send something: a worker that asks, or grants
    /// credit, and does not read costs this much, not more.
    pub(super) async fn room(&self) -> MutexGuard<'_, State> {
        loop {
            // Made before the look: it hears of all that happens after it.
            let room = self.room.notified();
            {
                let mut state = self.state();
                if state.outbox.len() <= ROOM {
                    return state;
                }
                state.wants_room = true;
            }
            room.await;
        }
    }

    pub(super) fn see_to_outbox(&self, mut state: MutexGuard<'_, State>, at_once: bool) {
        match state.writer {
            Writer::Called | Writer::Reader | Writer::Writing => {}
            Writer::Nobody if at_once => {
                drop(state);
                self.flush();
            }
            Writer::Nobody => {
                state.writer = Writer::Called;
                drop(state);
                self.wake_writer.notify_one();
            }
        }
    }

    /// Writes what there is, as far as the socket takes it.
    pub(super) fn flush(&self) {
        loop {
            let mut state = self.state();
            if state.outbox.is_empty() || state.writer == Writer::Writing {
                if state.writer != Writer::Writing {
                    state.writer = Writer::Nobody;
                }
                return;
            }
            state.writer = Writer::Writing;
            state.begun = state.next_turn;
            let spare = std::mem::take(&mut state.spare);
            let mut batch = std::mem::replace(&mut state.outbox, spare);
            let wants_room = std::mem::take(&mut state.wants_room);
            state.tools.refusals_are_sent();
            drop(state);
            if wants_room {
                self.room.notify_waiters();
            }
            let complete = self.write(&mut batch);
            let mut state = self.state();
            if complete {
                batch.clear();
                state.spare = batch;
                state.writer = Writer::Nobody;
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
                    self.state().writer = Writer::Nobody;
                }
            }
            self.flush();
        }
    }

    /// From here on, what is sent waits for [`Connection::end_reading`].
    pub(super) fn begin_reading(state: &mut State) {
        if state.writer != Writer::Writing {
            state.writer = Writer::Reader;
        }
    }

    /// All answers of a read are worked off.
    pub(super) fn end_reading(&self) {
        let mut state = self.state();
        if state.writer == Writer::Reader {
            state.writer = Writer::Nobody;
            let empty = state.outbox.is_empty();
            drop(state);
            if !empty {
                self.flush();
            }
        }
    }

    /// Whether something may be heard of a call. A worker that answers what it cannot have read yet, by guessing, would free its
    /// place for a next call, and what is to be written would grow without end.
    pub(super) fn check_begun(state: &State, call: u64) -> Result<(), String> {
        match state.calls.get(&call) {
            Some(held) if held.turn > state.begun && !held.unsent => {
                Err(format!("it answered call {call} before it was sent"))
            }
            _ => Ok(()),
        }
    }

    /// The answer to a call has come: takes the call, and whatever runs for it.
    pub(super) fn take(state: &mut State, call: u64) -> Option<Held> {
        let held = state.calls.remove(&call)?;
        state.answered = state.answered.max(held.turn);
        state.tools.end_of(call);
        Some(held)
    }

    /// A part of the answer to a call has come: whatever the worker writes down elsewhere, the call was started.
    pub(super) fn has_started(state: &mut State, call: u64) {
        if let Some(held) = state.calls.get(&call) {
            state.answered = state.answered.max(held.turn);
        }
    }

    /// The worker can no longer be spoken to.
    fn close(&self, reason: &str) {
        self.state().closed = true;
        self.closed.close(reason);
    }

    /// Until it can no longer be spoken to; why.
    pub(crate) async fn closed(&self) -> Arc<str> {
        self.closed.reason().await
    }

    /// Asks the worker to finish and to go. It is given no more calls.
    pub(crate) fn drain(&self) {
        let mut state = self.state();
        state.leaving = true;
        state.outbox.frame(Kind::Drain, 0, |_| {});
        self.see_to_outbox(state, true);
    }

    /// Whether the worker has calls that are not answered.
    pub(crate) fn holds_calls(&self) -> bool {
        !self.state().calls.is_empty()
    }

    /// The calls that the worker is most likely doing now, in the order in which they were sent.
    pub(crate) fn at_work(&self) -> Vec<AtWork> {
        let state = self.state();
        let mut sent: Vec<&Held> = state.calls.values().filter(|held| !held.unsent).collect();
        sent.sort_unstable_by_key(|held| held.turn);
        let at_work = |held: &Held| {
            let since = if self.concurrency == 1 { state.busy_since } else { held.sent };
            let command = Arc::clone(&held.call.command.name);
            Some(AtWork { call: held.call.id(), command, since: since? })
        };
        sent.into_iter().take(self.concurrency).filter_map(at_work).collect()
    }

    /// How often the worker answered when it was asked to beat.
    pub(crate) fn beats(&self) -> Option<u64> {
        self.slate.beats()
    }

    /// The calls that the worker has not started by now, if it keeps a slate.
    pub(crate) fn not_begun(&self) -> Vec<CallId> {
        let state = self.state();
        let Ok(started) = self.slate.started() else { return Vec::new() };
        let last = state.last_turn(started);
        let waits = |held: &&Held| held.unsent || held.turn > last;
        state.calls.values().filter(waits).map(|held| held.call.id()).collect()
    }

    /// How many of many calls a worker that is gone had answered and begun, if known. Answers that it had not sent are handed on.
    fn how_far(&self, held: &Held, started: Started) -> Option<(usize, usize)> {
        let (Input::Many(inputs), id) = (&held.call.input, held.call.id().get()) else { return None };
        let mut answered = held.results;
        let mut begun = (started.call == id).then_some(started.inputs);
        if let Some(kept) = self.slate.kept(id) {
            let goes_on = kept.first == answered as u64;
            if let (true, Ok((count @ 1.., results))) = (goes_on, Encoded::list_of(&kept.entries))
                && answered + count <= inputs.len()
            {
                held.call.send_item(results);
                answered += count;
            }
            // While a nested call runs, the slate has that one's number; this one waits for it with the next of its calls.
            let waits = (self.concurrency == 1 && begun.is_none()).then_some(answered as u64 + 1);
            begun = begun.max(waits).max(Some(kept.started).filter(|started| *started > 0));
        }
        Some((answered, (begun? as usize).min(inputs.len())))
    }

    /// Gives up all calls: those that were surely not started go back to the pool, the others are lost.
    pub(crate) fn give_up(&self, slate: LastWord) {
        let started = match slate {
            LastWord::Spoken => self.slate.started().ok(),
            LastWord::Unspoken => None,
        };
        let mut state = self.state();
        state.closed = true;
        state.leaving = true;
        state.tools.end_all();
        let last_turn = started.map(|started| state.last_turn(started));
        let mut calls: Vec<Held> = state.calls.drain().map(|(_, held)| held).collect();
        drop(state);
        calls.sort_by_key(|held| held.turn);
        for held in calls {
            let not_started = held.unsent || last_turn.is_some_and(|last| held.turn > last);
            let how_far = started.filter(|_| !not_started).and_then(|started| self.how_far(&held, started));
            match (how_far, started) {
                _ if not_started => held.call.give_back(),
                (Some((answered, begun)), _) => held.call.lose_between(answered, begun),
                (None, Some(started)) if started.call != held.call.id().get() => {
                    held.call.lose_before_others();
                }
                (None, _) => drop(held.call),
            }
        }
    }
}
