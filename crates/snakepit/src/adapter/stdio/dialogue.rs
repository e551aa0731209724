//! The calls that one worker holds, and what is written to it.
//!
//! What waits to be written is bounded by the calls that the worker may hold. What is heard is not read ahead: a stream
//! whose reader is slow holds up the pipe, and thereby the worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::reader;
use super::stdin::Stdin;
use crate::adapter::json::{self, Integers};
use crate::adapter::lines::LineReader;
use crate::adapter::{AtWork, Introduction};
use crate::call::{Call, CallError, CallId, Input, Portion, RemoteError};
use crate::transport::Closed;
use crate::value::{Encoded, ValueError};

/// A call that the worker holds.
pub(super) struct Held {
    pub(super) call: Call,
    /// Its turn among all that were sent.
    turn: u64,
    pub(super) sent: Instant,
    /// What was heard of its stream and is not yet granted again.
    pub(super) ahead: Portion,
    /// Where its line ends in all that is written.
    ends: u64,
    /// The worker could not be spoken to any more: it was not written and never will be.
    unsent: bool,
    /// It is being written, or was.
    begun: bool,
    /// It streams its answer, and the caller asked for none: it is cancelled, and its end is an error.
    pub(super) streams_unasked: bool,
}

/// What is written: the line of a call, or one about a call.
struct Outgoing {
    call: Option<u64>,
    text: Vec<u8>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: HashMap<u64, Held>,
    next_turn: u64,
    closed: bool,
    /// The worker is about to end, and takes no more calls.
    leaving: bool,
    /// What is left of its output is read, whoever is slow: it has an end.
    hurry: bool,
}

/// What is to be written.
struct Writer {
    lines: mpsc::UnboundedSender<Outgoing>,
    /// How many bytes they are, those that were written included.
    queued: u64,
}

/// Whether the process of a worker that is given up may still do something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Worker {
    Gone,
    MayLive,
}

/// See the module.
pub(super) struct Dialogue {
    state: Mutex<State>,
    /// None when standard input is to be closed. Locked before the state.
    writer: Mutex<Option<Writer>>,
    /// None when it is closed.
    stdin: Mutex<Option<Arc<Stdin>>>,
    /// Something changed that a reader may wait for.
    changed: Notify,
    closed: Closed,
    concurrency: usize,
    /// Commands of the engine's own that the worker serves.
    own_commands: Vec<String>,
    integers: Integers,
}

impl Dialogue {
    pub(super) fn integers(&self) -> Integers {
        self.integers
    }

    pub(super) fn open(
        mut lines: LineReader,
        stdin: pipe::Sender,
        concurrency: usize,
        introduction: &Introduction,
    ) -> Arc<Self> {
        // Bounded by the calls that the worker holds: a line for each, and two cancels. What is not written is not answered.
        let (writer, to_write) = mpsc::unbounded_channel();
        let stdin = Arc::new(Stdin::new(stdin));
        let dialogue = Arc::new(Self {
            state: Mutex::default(),
            writer: Mutex::new(Some(Writer { lines: writer, queued: 0 })),
            stdin: Mutex::new(Some(Arc::clone(&stdin))),
            changed: Notify::new(),
            closed: Closed::default(),
            concurrency,
            own_commands: introduction.commands.iter().filter(|name| is_own(name)).cloned().collect(),
            integers: Integers::of(&introduction.features),
        });
        let (reading, writing) = (Arc::clone(&dialogue), Arc::clone(&dialogue));
        let writer = tokio::spawn(async move {
            match writing.write_all(&stdin, to_write).await {
                Ok(()) => drop(writing.stdin().take()),
                Err(error) => writing.close(&format!("its standard input broke: {error}")),
            }
        });
        let writer = writer.abort_handle();
        tokio::spawn(async move {
            let reason = reader::read(&reading, &mut lines).await;
            reading.close(&reason);
            // Were its streams closed under a worker that is at fault, it would end of that, and nobody would hear why.
            reading.given_up().await;
            writer.abort();
            drop(lines);
        });
        dialogue
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stdin(&self) -> MutexGuard<'_, Option<Arc<Stdin>>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call.
    pub(super) fn execute(&self, call: Call) {
        if is_own(call.command()) && !self.own_commands.iter().any(|name| name == call.command()) {
            // The engine asks whether it is well, or tells that a session is over: it has no opinion.
            return call.finish(Ok(Encoded::nil()));
        }
        if let Input::Many(_) = call.input() {
            return call.finish(Err(RemoteError::new("refused", "this worker takes one call at a time")));
        }
        let line = match request(&call, self.integers) {
            Ok(line) => line,
            Err(source) => {
                let command = call.command().to_owned();
                return call.fail(CallError::Arguments { command, source });
            }
        };
        let (id, is_abandoned) = (call.id(), call.is_abandoned());
        let mut writer = self.writer();
        let mut state = self.state();
        let (Some(to), false) = (&mut *writer, state.leaving) else {
            drop(state);
            drop(writer);
            return call.give_back();
        };
        state.next_turn += 1;
        let unsent = state.closed;
        let held = Held {
            call,
            turn: state.next_turn,
            sent: Instant::now(),
            ahead: Portion::default(),
            ends: to.queued + line.len() as u64,
            unsent,
            begun: false,
            streams_unasked: false,
        };
        state.calls.insert(id.get(), held);
        drop(state);
        if unsent {
            return;
        }
        to.write(Outgoing { call: Some(id.get()), text: line });
        drop(writer);
        if is_abandoned {
            // Its caller went away before it was here, and could not ask the worker.
            self.cancel(id);
        }
    }

    /// Asks the worker to give up a call.
    pub(super) fn cancel(&self, call: CallId) {
        if self.state().calls.contains_key(&call.get()) {
            let text = format!("{{\"cancel\":{call}}}\n").into_bytes();
            if let Some(writer) = self.writer().as_mut() {
                writer.write(Outgoing { call: None, text });
            }
        }
        // A stream that nobody reads holds up nobody.
        self.changed.notify_waiters();
    }

    /// Writes line after line until there will be no more.
    async fn write_all(
        &self,
        stdin: &Stdin,
        mut lines: mpsc::UnboundedReceiver<Outgoing>,
    ) -> std::io::Result<()> {
        while let Some(Outgoing { call, text }) = lines.recv().await {
            if let Some(call) = call
                && let Some(held) = self.state().calls.get_mut(&call)
            {
                held.begun = true;
            }
            stdin.write_all(&text).await?;
        }
        Ok(())
    }

    /// So much more of a stream may be read.
    pub(super) fn grant(&self, call: CallId, more: Portion) {
        if let Some(held) = self.state().calls.get_mut(&call.get()) {
            held.ahead.items = held.ahead.items.saturating_sub(more.items);
            held.ahead.bytes = held.ahead.bytes.saturating_sub(more.bytes);
        }
        self.changed.notify_waiters();
    }

    /// Until a stream may send more, or nobody reads it any more.
    pub(super) async fn room(&self, call: u64) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                let Some(held) = state.calls.get(&call).filter(|_| !state.hurry) else { return };
                let is_full = held.call.stream_credit().is_some_and(|credit| held.ahead.reaches(credit));
                if !is_full || held.call.is_abandoned() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Until nobody waits for it any more.
    async fn given_up(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state().hurry {
                return;
            }
            changed.await;
        }
    }

    /// The answer to a call has come: takes it. The error is the fault of a worker that answers what it cannot have read.
    pub(super) fn take(&self, call: u64) -> Result<Option<Held>, String> {
        let mut state = self.state();
        match state.calls.get(&call) {
            Some(held) if !held.begun && !held.unsent => {
                Err(format!("it answered call {call} before it was sent"))
            }
            _ => Ok(state.calls.remove(&call)),
        }
    }

    /// The worker can no longer be spoken to.
    fn close(&self, reason: &str) {
        self.state().closed = true;
        self.closed.close(reason);
    }

    /// Until it can no longer be spoken to; why.
    pub(super) async fn closed(&self) -> Arc<str> {
        self.closed.reason().await
    }

    /// Says goodbye: what is to be written is, then standard input is closed.
    pub(super) fn drain(&self) {
        self.state().leaving = true;
        *self.writer() = None;
    }

    /// Its process has ended: what it has written is read to the end.
    pub(super) fn hurry(&self) {
        self.state().hurry = true;
        self.changed.notify_waiters();
    }

    pub(super) fn holds_calls(&self) -> bool {
        !self.state().calls.is_empty()
    }

    /// The calls that it is most likely doing now.
    pub(super) fn at_work(&self) -> Vec<AtWork> {
        let state = self.state();
        let mut sent: Vec<&Held> = state.calls.values().filter(|held| !held.unsent).collect();
        sent.sort_unstable_by_key(|held| held.turn);
        let at_work = |held: &&Held| AtWork {
            call: held.call.id(),
            command: Arc::clone(&held.call.command.name),
            since: held.sent,
        };
        sent.iter().take(self.concurrency).map(at_work).collect()
    }

    /// The calls whose lines the worker has not read to their ends.
    pub(super) fn not_begun(&self) -> Vec<CallId> {
        let read = self.stdin().as_ref().and_then(|stdin| stdin.read());
        let state = self.state();
        let waiting = state.calls.values().filter(|held| held.is_unread(read));
        waiting.map(|held| held.call.id()).collect()
    }

    /// Gives up all calls: those that were surely not begun go back to the pool, the others are lost. A worker that lives may
    /// yet read what was written.
    pub(super) fn give_up(&self, worker: Worker) {
        let stdin = self.stdin().take();
        let read = stdin.filter(|_| worker == Worker::Gone).and_then(|stdin| stdin.read());
        let mut state = self.state();
        (state.closed, state.leaving, state.hurry) = (true, true, true);
        let mut calls: Vec<Held> = state.calls.drain().map(|(_, held)| held).collect();
        drop(state);
        *self.writer() = None;
        self.changed.notify_waiters();
        calls.sort_by_key(|held| held.turn);
        for held in calls {
            if held.is_unread(read) {
                held.call.give_back();
            }
        }
    }
}

impl Held {
    /// Whether the worker cannot have begun it, if it has read so much.
    fn is_unread(&self, read: Option<u64>) -> bool {
        self.unsent || read.is_some_and(|read| read < self.ends)
    }
}

impl Writer {
    fn write(&mut self, line: Outgoing) {
        self.queued += line.text.len() as u64;
        // One that cannot be written to is closed by then.
        let _ = self.lines.send(line);
    }
}

/// Whether a command is the engine's own.
fn is_own(command: &str) -> bool {
    command.starts_with("snakepit.")
}

/// The line of a call. Its keys stand in this order, without spaces between them: a shell can cut it.
fn request(call: &Call, integers: Integers) -> Result<Vec<u8>, ValueError> {
    let mut out = format!("{{\"id\":{},\"command\":", call.id()).into_bytes();
    json::scalar(&mut out, call.command())?;
    out.extend_from_slice(b",\"args\":");
    json::write_arguments(&mut out, call, integers)?;
    if let Some(remaining) = call.remaining() {
        out.extend_from_slice(format!(",\"timeout_ms\":{}", remaining.as_millis()).as_bytes());
    }
    if call.stream_credit().is_some() {
        out.extend_from_slice(b",\"stream\":true");
    }
    if let Some(session) = call.session() {
        out.extend_from_slice(b",\"session\":");
        json::scalar(&mut out, session)?;
    }
    let metadata: std::collections::BTreeMap<&str, &str> = call.metadata().collect();
    if !metadata.is_empty() {
        out.extend_from_slice(b",\"metadata\":");
        json::scalar(&mut out, &metadata)?;
    }
    if let Some(trace) = call.trace() {
        out.extend_from_slice(b",\"traceparent\":");
        json::scalar(&mut out, trace.traceparent())?;
        if let Some(state) = trace.tracestate() {
            out.extend_from_slice(b",\"tracestate\":");
            json::scalar(&mut out, state)?;
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(out)
}
