//! What a worker prints: captured line by line, bounded, harmless to a terminal, and quiet unless somebody asks.
//!
//! A flood is drained, not stored: the last lines are kept, the others counted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::watch;
use tracing::Level;

use crate::call::CallId;
use crate::custody::WorkerId;
use crate::harmless;
use crate::logging::{Logging, OUTPUT};

/// The most lines that are kept of one worker.
const KEPT_LINES: usize = 200;
/// The most bytes that are kept of one worker.
const KEPT_BYTES: usize = 64 * 1024;
/// The most bytes of one line that are kept.
const LINE_LIMIT: usize = 8 * 1024;
/// How many of the last lines an error shows.
const SHOWN_LINES: usize = 20;
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

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<OutputLine>,
    bytes: usize,
    dropped: u64,
    /// How many lines there were when somebody was last told of them.
    told: u64,
}

/// The output of one worker.
#[derive(Debug)]
pub(crate) struct Output {
    worker: WorkerId,
    logging: Logging,
    kept: Mutex<Kept>,
    /// How many lines there were so far.
    printed: AtomicU64,
    /// What is still read.
    streams: Mutex<Vec<Arc<Stream>>>,
    /// How many streams are still read.
    open: watch::Sender<usize>,
}

/// A stream of a worker that is read.
#[derive(Debug)]
struct Stream {
    name: &'static str,
    reader: pipe::Receiver,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    lines: Lines,
    buffer: Vec<u8>,
}

impl Output {
    pub(crate) fn new(worker: WorkerId, logging: Logging) -> Arc<Self> {
        Arc::new(Self {
            worker,
            logging,
            kept: Mutex::default(),
            printed: AtomicU64::new(0),
            streams: Mutex::default(),
            open: watch::Sender::new(0),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        locked(&self.kept)
    }

    /// Reads a stream of the worker until its end.
    pub(crate) fn capture(self: &Arc<Self>, reader: OwnedFd, name: &'static str) {
        let Ok(reader) = pipe::Receiver::from_owned_fd(reader) else { return };
        self.capture_rest(reader, Lines::default(), name);
    }

    /// As [`Output::capture`], for a stream that somebody else has read so far.
    pub(crate) fn capture_rest(self: &Arc<Self>, reader: pipe::Receiver, lines: Lines, name: &'static str) {
        let reading = Mutex::new(Reading { lines, buffer: vec![0; READ] });
        let stream = Arc::new(Stream { name, reader, reading });
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
    fn read(&self, stream: &Stream, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut reading = locked(&stream.reading);
        let Reading { lines, buffer } = &mut *reading;
        let read = read(buffer)?;
        lines.feed(&buffer[..read], |text| self.line(stream.name, text));
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
    #[cfg(feature = "announce")]
    pub(crate) fn opened(self: &Arc<Self>) -> OpenStream {
        self.open.send_modify(|open| *open += 1);
        OpenStream(Arc::clone(self))
    }

    /// Keeps what stands in a stream that somebody else reads, in whatever pieces.
    #[cfg(feature = "announce")]
    pub(crate) fn feed(&self, stream: &'static str, lines: &mut Lines, bytes: &[u8]) {
        lines.feed(bytes, |text| self.line(stream, text));
    }

    /// Keeps a text that did not come through a pipe.
    pub(crate) fn text(&self, stream: &'static str, text: &str) {
        let mut lines = Lines::default();
        lines.feed(text.as_bytes(), |line| self.line(stream, line));
        lines.finish(|line| self.line(stream, line));
    }

    fn line(&self, stream: &'static str, text: String) {
        if self.logging.forwards_output() {
            tracing::info!(target: OUTPUT, worker = %self.worker, stream, text, "worker output");
        }
        self.printed.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept();
        kept.bytes += text.len();
        kept.lines.push_back(OutputLine { stream, text });
        while kept.lines.len() > KEPT_LINES || kept.bytes > KEPT_BYTES {
            let Some(line) = kept.lines.pop_front() else { break };
            kept.bytes -= line.text.len();
            kept.dropped += 1;
        }
    }

    /// How many lines there were so far. What is printed but not read yet does not count.
    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
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
        let lines = self.untold(since).join("\n");
        if !lines.is_empty() {
            let (worker, call) = (&self.worker, call.get());
            tracing::warn!(target: OUTPUT, %worker, call, command, outcome, lines, "what a worker printed in a call");
        }
    }

    /// The last lines after so many that nobody was told of, and a line that counts the others.
    fn untold(&self, since: u64) -> Vec<String> {
        let mut kept = self.kept();
        let all = kept.dropped + kept.lines.len() as u64;
        let new = all.saturating_sub(since.max(kept.told));
        kept.told = all;
        let shown = new.min(SHOWN_LINES as u64).min(kept.lines.len() as u64);
        let first = kept.lines.len() - shown as usize;
        let more = (new > shown).then(|| format!("({} lines before these)", new - shown));
        more.into_iter().chain(kept.lines.range(first..).map(|line| line.text.clone())).collect()
    }

    /// What is kept, and how many lines are not.
    pub(crate) fn lines(&self) -> (Vec<OutputLine>, u64) {
        let kept = self.kept();
        (kept.lines.iter().cloned().collect(), kept.dropped)
    }

    /// The last lines, for an error.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines_without(|_| ()).0
    }

    /// The same, after something was taken out of all that is kept.
    pub(crate) fn last_lines_without<T>(&self, take: impl FnOnce(&mut Vec<String>) -> T) -> (Vec<String>, T) {
        let (kept, dropped) = self.lines();
        let mut texts: Vec<String> = kept.into_iter().map(|line| line.text).collect();
        let taken = take(&mut texts);
        let shown = texts.split_off(texts.len().saturating_sub(SHOWN_LINES));
        let hidden = dropped + texts.len() as u64;
        let more = (hidden > 0).then(|| format!("({hidden} lines before these)"));
        (more.into_iter().chain(shown).collect(), taken)
    }
}

/// A stream that somebody else reads, until this is dropped.
#[cfg(feature = "announce")]
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Output>);

#[cfg(feature = "announce")]
impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    cut: usize,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], mut emit: impl FnMut(String)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.append(&bytes[..end]);
            self.finish(&mut emit);
            bytes = &bytes[end + 1..];
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = LINE_LIMIT - self.line.len();
        let (kept, cut) = bytes.split_at(bytes.len().min(room));
        self.line.extend_from_slice(kept);
        self.cut += cut.len();
    }

    fn finish(&mut self, mut emit: impl FnMut(String)) {
        if self.line.is_empty() && self.cut == 0 {
            return;
        }
        let line = String::from_utf8_lossy(&self.line);
        let mut text = harmless(line.strip_suffix('\r').unwrap_or(&line)).into_owned();
        if self.cut > 0 {
            text = format!("{text}… ({} bytes more)", self.cut);
        }
        self.line.clear();
        self.cut = 0;
        emit(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, |text| seen.push(text));
        }
        lines.finish(|text| seen.push(text));
        seen
    }

    fn quiet() -> Arc<Output> {
        Output::new(WorkerId::new("w1").expect("an id"), Logging::default())
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        assert_eq!(cut(&[b"one\ntw", b"o\n", b"three"]), ["one", "two", "three"]);
    }

    #[test]
    fn an_endless_line_is_cut_and_counted() {
        let long = vec![b'x'; LINE_LIMIT + 7];
        let seen = cut(&[&long, b"\nnext\n"]);
        assert_eq!(seen.len(), 2);
        assert!(seen[0].ends_with("x… (7 bytes more)"), "{}", &seen[0][LINE_LIMIT - 3..]);
        assert_eq!(seen[1], "next");
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        assert_eq!(cut(&[b"\x1b[31mred\x1b[0m\tok\r\n"]), ["\\u{1b}[31mred\\u{1b}[0m\tok"]);
        assert_eq!(cut(&["a\u{202e}b".as_bytes()]), ["a\\u{202e}b"]);
        assert_eq!(cut(&[b"\xff\xfe"]), ["\u{fffd}\u{fffd}"]);
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
        assert_eq!(output.last_lines().first().map(String::as_str), Some("(980 lines before these)"));
    }

    #[test]
    fn a_line_is_told_once_and_only_to_calls_that_were_there() {
        let output = quiet();
        let print = |lines: std::ops::Range<u32>| lines.for_each(|n| output.line("stdout", n.to_string()));
        print(0..3);
        let since = output.printed();
        assert!(output.untold(since).is_empty());
        print(3..5);
        assert_eq!(output.untold(since), ["3", "4"]);
        assert!(output.untold(since).is_empty());
        print(5..1000);
        let told = output.untold(since);
        assert_eq!((told.len(), told[0].as_str()), (1 + SHOWN_LINES, "(975 lines before these)"));
        assert_eq!(told.last().map(String::as_str), Some("999"));
    }
}
