//! What a worker prints: captured line by line, bounded, harmless to a terminal, and quiet unless somebody asks.
//!
//! A flood is drained, not stored: the last lines are kept, the others counted. [`super::lines`] cuts them, and
//! [`super::kept`] keeps them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::watch;
use tracing::Level;

use super::lines::Lines;
use super::output_tail::OutputTail;
use crate::call::CallId;
use crate::custody::WorkerId;
use crate::logging::{Logging, OUTPUT, PROGRESS};

/// The most that is read at a time.
const READ: usize = 16 * 1024;
/// How often somebody who wants to know what was printed reads: what a full pipe holds, and no more of a flood.
const CATCHING_UP: usize = 8;

/// One line that a worker printed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutputLine {
    /// `stdout`, `stderr`, or `log` for what came through the SDK.
    pub stream: &'static str,
    /// The line, without its end and with control characters spelled out.
    pub text: String,
}

/// The output of one worker.
#[derive(Debug)]
pub struct Output {
    worker: WorkerId,
    logging: Logging,
    kept: Mutex<OutputTail>,
    /// How many lines there were so far.
    printed: AtomicU64,
    /// How many there were when the call began that the worker is at.
    begun: AtomicU64,
    /// What is still read.
    streams: Mutex<Vec<Arc<OutputPipe>>>,
    /// How many streams are still read.
    open: watch::Sender<usize>,
}

/// A stream of a worker that is read.
#[derive(Debug)]
struct OutputPipe {
    name: &'static str,
    reader: pipe::Receiver,
    reading: Mutex<PipeReader>,
}

#[derive(Debug)]
struct PipeReader {
    lines: Lines,
    buffer: Vec<u8>,
}

impl Output {
    /// What a worker of this name prints, told as `logging` says.
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

    /// Reads a stream of the worker until its end.
    pub fn capture(self: &Arc<Self>, reader: OwnedFd, name: &'static str) {
        let Ok(reader) = pipe::Receiver::from_owned_fd(reader) else { return };
        self.capture_rest(reader, Lines::default(), name);
    }

    /// As [`Output::capture`], for a stream that somebody else has read so far.
    pub fn capture_rest(self: &Arc<Self>, reader: pipe::Receiver, lines: Lines, name: &'static str) {
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

    /// Reads once.
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

    /// Takes in what the worker has printed by now. Its answer comes another way, and often sooner.
    pub(crate) fn catch_up(&self) {
        // Lines that are forwarded keep their order: one task alone reads them.
        if self.logging.forwards_output() {
            return;
        }
        let streams = locked(&self.streams).clone();
        for stream in streams {
            for _ in 0..CATCHING_UP {
                // Past the runtime, which may not have heard yet that there is something.
                let read = self.read(&stream, |buffer| Ok(rustix::io::read(&stream.reader, buffer)?));
                if !matches!(read, Ok(1..)) {
                    break;
                }
            }
        }
    }

    /// Until everything that the worker printed is read; what still has its streams may delay it.
    pub(crate) async fn complete(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Counts a stream that somebody else reads among those that are.
    pub fn opened(self: &Arc<Self>) -> OpenStream {
        self.open.send_modify(|open| *open += 1);
        OpenStream(Arc::clone(self))
    }

    /// Keeps what stands in a stream that somebody else reads, in whatever pieces.
    pub fn feed(&self, stream: &'static str, lines: &mut Lines, bytes: &[u8]) {
        self.take_in(stream, lines, bytes);
    }

    fn take_in(&self, stream: &'static str, lines: &mut Lines, bytes: &[u8]) {
        lines.feed(bytes, |text| self.line(stream, text));
        if self.logging.forwards_output()
            && let Some(text) = lines.progress()
        {
            tracing::debug!(target: PROGRESS, worker = %self.worker, stream, text, "worker progress");
        }
    }

    /// Keeps a text that did not come through a pipe.
    pub fn text(&self, stream: &'static str, text: &str) {
        let mut lines = Lines::default();
        lines.feed(text.as_bytes(), |line| self.line(stream, line));
        lines.finish(|line| self.line(stream, line));
    }

    fn line(&self, stream: &'static str, text: String) {
        if self.logging.forwards_output() {
            tracing::info!(target: OUTPUT, worker = %self.worker, stream, text, "worker output");
        }
        self.printed.fetch_add(1, Ordering::Relaxed);
        self.kept().push(OutputLine { stream, text }, self.begun());
    }

    /// How many lines there were so far. What is printed but not read yet does not count.
    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    /// The worker begins a call: what comes from now on belongs to it.
    pub(crate) fn begin_call(&self) {
        self.begun.store(self.printed(), Ordering::Relaxed);
    }

    /// How many lines there were when the call began that the worker is at; if it does several at a time, the first of them.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// A call came to a bad end: what was printed since so many lines is told, once, unless each line is.
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

    /// The last lines, and how many there were before them.
    pub(crate) fn lines(&self) -> (Vec<OutputLine>, u64) {
        self.kept().lines()
    }

    /// What an error shows of all that was printed.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.shown_since(0)
    }

    /// What an error shows of a call that began after so many lines.
    pub(crate) fn shown_since(&self, since: u64) -> Vec<String> {
        self.shown_without(since, |_| ()).0
    }

    /// The same, after something was taken out of the last lines.
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

/// A stream that somebody else reads, until this is dropped.
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
    use super::super::output_tail::{FIRST_LINES, KEPT_LINES, LAST_LINES};
    use super::*;

    fn quiet() -> Arc<Output> {
        Output::new(WorkerId::new("w1").expect("an id"), Logging::default())
    }

    #[test]
    fn a_flood_keeps_the_last_lines_and_counts_the_rest() {
        let output = quiet();
        for number in 0..1000 {
            output.line("stdout", format!("line {number}"));
        }
        let (lines, dropped) = output.lines();
        assert_eq!((lines.len(), dropped), (KEPT_LINES, 1000 - KEPT_LINES as u64));
        assert_eq!(lines.last().map(|line| line.text.as_str()), Some("line 999"));
        assert_eq!(output.shown()[FIRST_LINES], "… 920 lines left out …");
    }

    #[test]
    fn a_line_is_told_once_and_only_to_calls_that_were_there() {
        let output = quiet();
        let print = |lines: std::ops::Range<u32>| lines.for_each(|n| output.line("stdout", n.to_string()));
        print(0..3);
        let since = output.printed();
        assert!(output.kept().untold(since).is_empty());
        print(3..5);
        assert_eq!(output.kept().untold(since), ["3", "4"]);
        assert!(output.kept().untold(since).is_empty());
        print(5..1000);
        let told = output.kept().untold(since);
        // Five of the first lines were told before.
        assert_eq!(told.len(), FIRST_LINES - 5 + 1 + LAST_LINES);
        assert_eq!(told.last().map(String::as_str), Some("999"));
    }
}
