//! The output of a worker: captured line by line, bounded, harmless to a terminal, and quiet unless it is forwarded.
//!
//! A flood of output is read but not stored: the last lines are kept, and the others are counted. `lines` cuts the
//! lines, and `output_tail` keeps them.

mod lines;
mod output_tail;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::watch;
use tracing::Level;

pub use lines::Lines;
use output_tail::OutputTail;

use crate::call::CallId;
use crate::custody::WorkerId;
use crate::logging::{Logging, OUTPUT, PROGRESS};

/// The most bytes that are read at a time.
const READ: usize = 16 * 1024;
/// How often `catch_up` reads from each stream: enough to empty a full pipe, and no more of a flood.
const CATCHING_UP: usize = 8;

/// Where a worker printed a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The log of the SDK.
    Log,
}

impl OutputStream {
    /// Returns the name: `stdout`, `stderr` or `log`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Log => "log",
        }
    }
}

impl fmt::Display for OutputStream {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

/// The last lines that a worker printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WorkerOutput {
    /// The lines that are kept, in the order in which they came.
    pub lines: Vec<OutputLine>,
    /// The number of lines before them that are not kept.
    pub dropped: u64,
}

/// One line that a worker printed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutputLine {
    /// Where the worker printed it.
    pub stream: OutputStream,
    /// The line, without its line end and with control characters escaped.
    pub text: String,
}

/// The output of one worker.
#[derive(Debug)]
pub struct Output {
    worker: WorkerId,
    logging: Logging,
    kept: Mutex<OutputTail>,
    /// The number of lines read so far.
    printed: AtomicU64,
    /// The number of lines read when the current call began.
    begun: AtomicU64,
    /// The streams that are still read.
    streams: Mutex<Vec<Arc<OutputPipe>>>,
    /// The number of streams that are still read, including those that other code reads.
    open: watch::Sender<usize>,
}

/// A stream of a worker and its reader.
#[derive(Debug)]
struct OutputPipe {
    name: OutputStream,
    reader: pipe::Receiver,
    reading: Mutex<PipeReader>,
}

#[derive(Debug)]
struct PipeReader {
    lines: Lines,
    buffer: Vec<u8>,
}

impl Output {
    /// Creates the output of a worker. `logging` decides what is forwarded.
    pub fn new(worker: WorkerId, logging: Logging) -> Arc<Self> {
        Arc::new(Self {
            worker,
            logging,
            kept: Mutex::default(),
            printed: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            streams: Mutex::default(),
            open: watch::Sender::new(0),
        })
    }

    fn kept(&self) -> MutexGuard<'_, OutputTail> {
        locked(&self.kept)
    }

    /// Starts to read a stream of the worker, until the stream ends.
    pub fn capture(self: &Arc<Self>, reader: OwnedFd, name: OutputStream) {
        let Ok(reader) = pipe::Receiver::from_owned_fd(reader) else { return };
        self.capture_rest(reader, Lines::default(), name);
    }

    /// Like [`Output::capture`], for a stream that other code has read so far.
    pub fn capture_rest(self: &Arc<Self>, reader: pipe::Receiver, lines: Lines, name: OutputStream) {
        let reading = Mutex::new(PipeReader { lines, buffer: vec![0; READ] });
        let stream = Arc::new(OutputPipe { name, reader, reading });
        locked(&self.streams).push(Arc::clone(&stream));
        self.open.send_modify(|open| *open += 1);
        let output = Arc::clone(self);
        tokio::spawn(async move {
            while stream.reader.readable().await.is_ok() {
                match output.read(&stream, |buffer| stream.reader.try_read(buffer)) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break,
                }
            }
            locked(&stream.reading).lines.finish(|text| output.line(name, text));
            locked(&output.streams).retain(|other| !Arc::ptr_eq(other, &stream));
            output.open.send_modify(|open| *open -= 1);
        });
    }

    /// Reads once from a stream.
    fn read(
        &self,
        stream: &OutputPipe,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut reading = locked(&stream.reading);
        let PipeReader { lines, buffer } = &mut *reading;
        let read = read(buffer)?;
        self.take_in(stream.name, lines, &buffer[..read]);
        Ok(read)
    }

    /// Reads what the worker has printed by now. Its answers arrive through another channel, often sooner.
    pub(crate) fn catch_up(&self) {
        // Forwarded lines must keep their order, so only one task reads them.
        if self.logging.forwards_output() {
            return;
        }
        let streams = locked(&self.streams).clone();
        for stream in streams {
            for _ in 0..CATCHING_UP {
                // Bypasses the runtime, which may not know yet that the pipe is readable.
                let read = self.read(&stream, |buffer| Ok(rustix::io::read(&stream.reader, buffer)?));
                if !matches!(read, Ok(1..)) {
                    break;
                }
            }
        }
    }

    /// Waits until all output of the worker is read. Processes that still hold its streams may delay this.
    pub(crate) async fn complete(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Counts a stream that other code reads as open.
    pub fn opened(self: &Arc<Self>) -> OpenStream {
        self.open.send_modify(|open| *open += 1);
        OpenStream(Arc::clone(self))
    }

    /// Keeps bytes from a stream that other code reads, in pieces of any size.
    pub fn feed(&self, stream: OutputStream, lines: &mut Lines, bytes: &[u8]) {
        self.take_in(stream, lines, bytes);
    }

    fn take_in(&self, stream: OutputStream, lines: &mut Lines, bytes: &[u8]) {
        lines.feed(bytes, |text| self.line(stream, text));
        if self.logging.forwards_output()
            && let Some(text) = lines.progress()
        {
            tracing::debug!(target: PROGRESS, worker = %self.worker, stream = stream.as_str(), text, "worker progress");
        }
    }

    /// Keeps a text that did not come through a pipe.
    pub fn text(&self, stream: OutputStream, text: &str) {
        let mut lines = Lines::default();
        lines.feed(text.as_bytes(), |line| self.line(stream, line));
        lines.finish(|line| self.line(stream, line));
    }

    fn line(&self, stream: OutputStream, text: String) {
        if self.logging.forwards_output() {
            tracing::info!(target: OUTPUT, worker = %self.worker, stream = stream.as_str(), text, "worker output");
        }
        self.printed.fetch_add(1, Ordering::Relaxed);
        self.kept().push(OutputLine { stream, text }, self.begun());
    }

    /// Returns the number of lines read so far. Output that is printed but not read yet does not count.
    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    /// Marks the beginning of a call: later lines belong to it.
    pub(crate) fn begin_call(&self) {
        self.begun.store(self.printed(), Ordering::Relaxed);
    }

    /// Returns the number of lines read when the current call began. Of several concurrent calls, the first one counts.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Logs the lines after line `since`, because a call failed. Each line is logged once, and not at all if every line
    /// is forwarded.
    pub(crate) fn tell(&self, since: u64, call: CallId, command: &str, outcome: &'static str) {
        if self.logging.forwards_output()
            || !self.logging.allows(Level::WARN)
            || !tracing::event_enabled!(target: OUTPUT, Level::WARN)
        {
            return;
        }
        self.catch_up();
        let lines = self.kept().untold(since).join("\n");
        if !lines.is_empty() {
            let (worker, call) = (&self.worker, call.get());
            tracing::warn!(target: OUTPUT, %worker, call, command, outcome, lines, "what a worker printed in a call");
        }
    }

    /// Returns the last lines, and how many lines there were before them.
    pub(crate) fn lines(&self) -> WorkerOutput {
        self.kept().lines()
    }

    /// Returns what an error shows of all output.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.shown_since(0)
    }

    /// Returns what an error shows of a call that began after `since` lines.
    pub(crate) fn shown_since(&self, since: u64) -> Vec<String> {
        self.shown_without(since, |_| ()).0
    }

    /// Like `shown_since`, but `take` may remove some of the last lines first.
    pub(crate) fn shown_without<T>(
        &self,
        since: u64,
        take: impl FnOnce(&mut Vec<String>) -> T,
    ) -> (Vec<String>, T) {
        let streams = locked(&self.streams).clone();
        let unfinished = streams.iter().filter_map(|stream| locked(&stream.reading).lines.unfinished());
        let unfinished = unfinished.collect();
        self.kept().shown(since, unfinished, take)
    }
}

/// A stream that other code reads, open until this value is dropped.
#[derive(Debug)]
pub struct OpenStream(Arc<Output>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::output_tail::{FIRST_LINES, KEPT_LINES, LAST_LINES};
    use super::*;

    fn quiet() -> Arc<Output> {
        Output::new(WorkerId::new("w1").expect("an id"), Logging::default())
    }

    #[test]
    fn a_flood_keeps_the_last_lines_and_counts_the_rest() {
        let output = quiet();
        for number in 0..1000 {
            output.line(OutputStream::Stdout, format!("line {number}"));
        }
        let WorkerOutput { lines, dropped } = output.lines();
        assert_eq!((lines.len(), dropped), (KEPT_LINES, 1000 - KEPT_LINES as u64));
        assert_eq!(lines.last().map(|line| line.text.as_str()), Some("line 999"));
        assert_eq!(output.shown()[FIRST_LINES], "… 920 lines left out …");
    }

    #[test]
    fn a_line_is_reported_once_and_only_for_calls_that_had_begun() {
        let output = quiet();
        let print = |lines: std::ops::Range<u32>| {
            lines.for_each(|n| output.line(OutputStream::Stdout, n.to_string()));
        };
        print(0..3);
        let since = output.printed();
        assert!(output.kept().untold(since).is_empty());
        print(3..5);
        assert_eq!(output.kept().untold(since), ["3", "4"]);
        assert!(output.kept().untold(since).is_empty());
        print(5..1000);
        let told = output.kept().untold(since);
        // Five of the first lines are missing: three came before the call, and two were reported already.
        assert_eq!(told.len(), FIRST_LINES - 5 + 1 + LAST_LINES);
        assert_eq!(told.last().map(String::as_str), Some("999"));
    }
}
