//! The calls that one worker holds, and the lines written to it.
//!
//! The number of lines that wait to be written is limited by the number of calls that the worker may hold. Output is
//! not read ahead: a stream with a slow reader blocks the pipe, and thereby the worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};

use super::reader;
use super::stdin::Stdin;
use crate::adapter::{
    CallAdmission, HeldCall, HeldCalls, Introduction, ProtocolFault, StartKnowledge, WorkerChannel,
};
use crate::call::{Call, CallId};
use crate::json::{self, Integers};
use crate::lines::LineReader;
use crate::transport::Closed;
use crate::value::ValueError;

/// The position of the end of a call's line among all bytes written.
pub(super) type LineEnd = u64;

/// A line to write: a call, or a message about a call.
struct Outgoing {
    call: Option<u64>,
    text: Vec<u8>,
}

pub(super) struct StdioConnectionState {
    pub(super) calls: HeldCalls<LineEnd>,
    /// Whether the rest of the output is read without waiting for the readers of streams. The rest is finite.
    hurry: bool,
}

/// The lines to write.
struct LineQueue {
    lines: mpsc::UnboundedSender<Outgoing>,
    /// The number of bytes queued so far, including those already written.
    queued: u64,
}

/// The calls of one worker, and its standard streams.
pub(super) struct StdioConnection {
    state: Mutex<StdioConnectionState>,
    /// `None` when standard input is to be closed. Locked before the state.
    writer: Mutex<Option<LineQueue>>,
    /// `None` once standard input is closed.
    stdin: Mutex<Option<Arc<Stdin>>>,
    /// Notified when `hurry` is set.
    hurried: Notify,
    closed: Closed,
    integers: Integers,
}

impl StdioConnection {
    pub(super) fn integers(&self) -> Integers {
        self.integers
    }

    pub(super) fn open(
        mut lines: LineReader,
        stdin: pipe::Sender,
        concurrency: usize,
        introduction: &Introduction,
    ) -> Arc<Self> {
        // Bounded by the calls that the worker holds: a line and two cancels for each. A call is not answered before
        // it is written.
        let (writer, to_write) = mpsc::unbounded_channel();
        let stdin = Arc::new(Stdin::new(stdin));
        let connection = Arc::new(Self {
            state: Mutex::new(StdioConnectionState { calls: HeldCalls::new(concurrency), hurry: false }),
            writer: Mutex::new(Some(LineQueue { lines: writer, queued: 0 })),
            stdin: Mutex::new(Some(Arc::clone(&stdin))),
            hurried: Notify::new(),
            closed: Closed::default(),
            integers: Integers::of(&introduction.features),
        });
        let (reading, writing) = (Arc::clone(&connection), Arc::clone(&connection));
        let writer = tokio::spawn(async move {
            match writing.write_all(&stdin, to_write).await {
                Ok(()) => drop(writing.stdin().take()),
                Err(error) => writing.close(ProtocolFault::broke(WorkerChannel::StandardInput, error)),
            }
        });
        let writer = writer.abort_handle();
        tokio::spawn(async move {
            let fault = reader::read(&reading, &mut lines).await;
            reading.close(fault);
            // Closing the streams of a faulty worker at once would end the worker, and hide the fault.
            reading.given_up().await;
            writer.abort();
            drop(lines);
        });
        connection
    }

    pub(super) fn state(&self) -> MutexGuard<'_, StdioConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<LineQueue>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stdin(&self) -> MutexGuard<'_, Option<Arc<Stdin>>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call.
    pub(super) fn execute(&self, call: Call) {
        let Some((call, line)) = crate::prepared(call, |call| request(call, self.integers)) else { return };
        let id = call.id().get();
        let mut writer = self.writer();
        let mut state = self.state();
        let begun = match &*writer {
            None => CallAdmission::Refused(call),
            Some(to) => state.calls.begin(call, to.queued + line.len() as u64),
        };
        let is_abandoned = match begun {
            CallAdmission::ToSend(held) => held.call.is_abandoned(),
            CallAdmission::Kept => return,
            CallAdmission::Refused(call) => {
                drop(state);
                drop(writer);
                return call.give_back();
            }
        };
        // Released first, because the task that writes the line needs the state at once.
        drop(state);
        if let Some(to) = &mut *writer {
            to.write(Outgoing { call: Some(id), text: line });
        }
        drop(writer);
        if is_abandoned {
            // The caller abandoned the call before it arrived here, when the worker could not be asked to cancel it.
            self.cancel(id);
        }
    }

    /// Asks the worker to cancel a call.
    pub(super) fn cancel(&self, call: u64) {
        let held = {
            let state = self.state();
            // The stream no longer waits for its reader.
            state.calls.release_stream(call);
            state.calls.holds(call)
        };
        if held {
            let text = format!("{{\"cancel\":{call}}}\n").into_bytes();
            if let Some(writer) = self.writer().as_mut() {
                writer.write(Outgoing { call: None, text });
            }
        }
    }

    /// Writes lines until the queue is closed.
    async fn write_all(
        &self,
        stdin: &Stdin,
        mut lines: mpsc::UnboundedReceiver<Outgoing>,
    ) -> std::io::Result<()> {
        while let Some(Outgoing { call, text }) = lines.recv().await {
            if let Some(call) = call
                && !self.state().calls.sent(call)
            {
                // The call goes to another worker.
                continue;
            }
            stdin.write_all(&text).await?;
        }
        Ok(())
    }

    /// Waits until the stream of a call has credit.
    pub(super) async fn room(&self, call: u64) {
        let credit = self.state().calls.credit(call);
        if let Some(credit) = credit {
            credit.available().await;
        }
    }

    /// Waits for [`hurry`](Self::hurry).
    async fn given_up(&self) {
        loop {
            let hurried = self.hurried.notified();
            if self.state().hurry {
                return;
            }
            hurried.await;
        }
    }

    /// Takes a call whose answer has arrived. It is an error of the worker to answer a call that it cannot have read.
    pub(super) fn take(&self, call: u64) -> Result<Option<(HeldCall<LineEnd>, Duration)>, ProtocolFault> {
        let mut state = self.state();
        state.calls.check_sent(call)?;
        let held = state.calls.take(call);
        Ok(held.map(|held| {
            let service = state.calls.service_time(&held);
            (held, service)
        }))
    }

    /// Stops sending calls, and records the reason.
    fn close(&self, fault: ProtocolFault) {
        self.state().calls.close();
        self.closed.close(fault);
    }

    /// Waits until the streams can no longer be used. Returns the reason.
    pub(super) async fn closed(&self) -> ProtocolFault {
        self.closed.reason().await
    }

    /// Closes standard input once all queued lines are written.
    pub(super) fn drain(&self) {
        self.state().calls.leave();
        *self.writer() = None;
    }

    /// Reads the rest of the output without waiting for the readers of streams.
    pub(super) fn hurry(&self) {
        let mut state = self.state();
        state.hurry = true;
        state.calls.release_streams();
        drop(state);
        self.hurried.notify_waiters();
    }

    /// Returns the calls whose lines the worker has not completely read.
    pub(super) fn not_begun(&self) -> Vec<CallId> {
        let read = self.stdin().as_ref().and_then(|stdin| stdin.read());
        let mut state = self.state();
        let starts = state.note_read(read);
        state.calls.not_begun(starts)
    }

    /// Gives up all calls. Calls that were certainly not begun go back to the pool; the others are lost. A running
    /// worker may still read what was written, so its starts are unknown.
    pub(super) fn give_up(&self, starts: StartKnowledge) {
        let stdin = self.stdin().take();
        let read = stdin.filter(|_| starts == StartKnowledge::Known).and_then(|stdin| stdin.read());
        let mut state = self.state();
        let starts = state.note_read(read);
        let ended = state.calls.end(starts);
        drop(state);
        *self.writer() = None;
        self.hurry();
        ended.settle();
    }
}

impl StdioConnectionState {
    /// Records how many bytes the worker has read. It may have begun every call whose line ends at or before that
    /// position.
    fn note_read(&mut self, read: Option<u64>) -> StartKnowledge {
        let Some(read) = read else { return StartKnowledge::Unknown };
        self.calls.started_where(|line_end| *line_end <= read);
        StartKnowledge::Known
    }
}

impl LineQueue {
    fn write(&mut self, line: Outgoing) {
        self.queued += line.text.len() as u64;
        // This fails only if the writer has ended, and then the connection is closed.
        let _ = self.lines.send(line);
    }
}

/// Returns the line of a call. Its keys are in this order and without spaces between them, so that a shell can parse
/// it.
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
