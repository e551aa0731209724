//! Splits a worker's standard output into lines that may be messages and lines that are logs.
//!
//! A line that begins with `{` is kept until its end, up to a limit. Every other line goes to the worker's output
//! piece by piece, however long it is, so that a progress bar is shown before its line ends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::pipe_buffer::PipeBuffer;
use crate::worker::{Lines, OpenStream, Output, OutputStream};

/// The number of bytes to read at a time, as many as a pipe holds.
const READ: usize = 64 * 1024;
/// The number of bytes to read at a time from a pipe that was made larger for a long line.
const LARGEST_READ: usize = 1 << 20;
/// The maximum number of spaces before a message.
const MOST_SPACES: usize = 1024;
/// The name of the stream in the worker's output.
const STDOUT: OutputStream = OutputStream::Stdout;

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line that begins with `{`, without its newline.
    Object(Bytes),
    /// A line that begins with `{` and exceeds the limit. Its contents go to the output.
    TooLong,
    /// The end of the stream.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinePlace {
    /// Before the first byte of a line that is not a space, after this many spaces.
    Start { spaces: usize },
    /// In a line that begins with `{`. This many bytes were searched and contain no newline.
    Object { searched: usize },
    /// In any other line.
    Log,
}

impl LinePlace {
    const START: Self = Self::Start { spaces: 0 };
}

/// Splits bytes into lines.
#[derive(Debug)]
struct Cutter {
    buffer: BytesMut,
    place: LinePlace,
    limit: usize,
}

/// The result of examining the buffered bytes.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    Object(Bytes),
    Log(BytesMut),
    TooLong,
    /// More bytes are needed.
    Nothing,
}

impl Cutter {
    fn next(&mut self) -> Cut {
        loop {
            match self.place {
                LinePlace::Start { spaces: before } => {
                    let more =
                        self.buffer[before..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                    let spaces = before + more;
                    self.place = match self.buffer.get(spaces) {
                        None if spaces <= MOST_SPACES => {
                            self.place = LinePlace::Start { spaces };
                            return Cut::Nothing;
                        }
                        Some(b'{') => LinePlace::Object { searched: spaces },
                        _ => LinePlace::Log,
                    };
                }
                LinePlace::Object { searched } => {
                    let end = memchr::memchr(b'\n', &self.buffer[searched..]);
                    let length = end.map_or(self.buffer.len(), |end| searched + end);
                    if length > self.limit {
                        self.place = LinePlace::Log;
                        return Cut::TooLong;
                    }
                    if end.is_none() {
                        self.place = LinePlace::Object { searched: length };
                        return Cut::Nothing;
                    }
                    let line = self.buffer.split_to(length).freeze();
                    self.buffer.advance(1);
                    self.place = LinePlace::START;
                    return Cut::Object(line);
                }
                LinePlace::Log if self.buffer.is_empty() => return Cut::Nothing,
                LinePlace::Log => {
                    let end = memchr::memchr(b'\n', &self.buffer);
                    if end.is_some() {
                        self.place = LinePlace::START;
                    }
                    return Cut::Log(self.buffer.split_to(end.map_or(self.buffer.len(), |end| end + 1)));
                }
            }
        }
    }
}

/// Reads one worker's standard output.
pub(super) struct LineReader {
    reader: pipe::Receiver,
    room: PipeBuffer,
    cutter: Cutter,
    logs: Lines,
    output: Arc<Output>,
    _open: OpenStream,
}

impl LineReader {
    /// Creates a reader from the read end of the worker's standard output. A line of up to `limit` bytes may be a
    /// message.
    pub(super) fn new(stdout: OwnedFd, output: Arc<Output>, limit: usize) -> io::Result<Self> {
        let cutter = Cutter { buffer: BytesMut::new(), place: LinePlace::START, limit };
        let reader = pipe::Receiver::from_owned_fd(stdout)?;
        Ok(Self {
            reader,
            room: PipeBuffer::default(),
            cutter,
            logs: Lines::default(),
            _open: output.opened(),
            output,
        })
    }

    /// Returns the next line that may be a message. Cancel safe: if the future is dropped, no bytes are lost.
    pub(super) async fn next(&mut self) -> io::Result<Line> {
        loop {
            match self.cutter.next() {
                Cut::Object(line) => return Ok(Line::Object(line)),
                Cut::TooLong => return Ok(Line::TooLong),
                Cut::Log(bytes) => self.log(&bytes),
                Cut::Nothing => {
                    self.make_room();
                    if self.reader.read_buf(&mut self.cutter.buffer).await? == 0 {
                        // An unterminated message may be incomplete.
                        let rest = self.cutter.buffer.split();
                        self.cutter.place = LinePlace::START;
                        self.log(&rest);
                        self.log(b"\n");
                        return Ok(Line::End);
                    }
                }
            }
        }
    }

    /// Makes room for the next read: the more of a line has arrived, the more is read at a time.
    fn make_room(&mut self) {
        let have = self.cutter.buffer.len();
        if have >= READ {
            self.room.make_large(&self.reader);
        }
        self.cutter.buffer.reserve(have.clamp(READ, LARGEST_READ));
    }

    /// Logs a line that turned out not to be a message.
    pub(super) fn log_line(&mut self, line: &[u8]) {
        self.log(line);
        self.log(b"\n");
    }

    fn log(&mut self, bytes: &[u8]) {
        self.output.feed(STDOUT, &mut self.logs, bytes);
    }

    /// Logs what was read so far, including an unterminated line, because nobody reads on.
    pub(super) fn break_off(&mut self) {
        let rest = self.cutter.buffer.split();
        self.log(&rest);
        self.log(if rest.is_empty() { b"\n" } else { b" (without the end of its line)\n" });
    }

    /// Treats the rest of the stream as logs.
    pub(super) fn leave_to_output(mut self) {
        let rest = self.cutter.buffer.split();
        self.log(&rest);
        self.output.capture_rest(self.reader, self.logs, STDOUT);
    }
}

/// Cuts output that arrives in pieces of this size into lines. Logs are left out.
#[cfg(any(fuzzing, test))]
#[cfg_attr(not(feature = "stdio"), expect(dead_code, reason = "the fuzz target of lines is that of stdio"))]
pub(super) fn cut_in_pieces(bytes: &[u8], size: usize, limit: usize, mut see: impl FnMut(&[u8])) {
    let mut cutter = Cutter { buffer: BytesMut::new(), place: LinePlace::START, limit };
    for piece in bytes.chunks(size) {
        cutter.buffer.extend_from_slice(piece);
        loop {
            match cutter.next() {
                Cut::Object(line) => see(&line),
                Cut::Log(_) | Cut::TooLong => {}
                Cut::Nothing => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages and the concatenated logs of output that arrives in these pieces.
    fn cut(pieces: &[&[u8]], limit: usize) -> (Vec<String>, String) {
        let mut cutter = Cutter { buffer: BytesMut::new(), place: LinePlace::START, limit };
        let (mut messages, mut logs) = (Vec::new(), String::new());
        for piece in pieces {
            cutter.buffer.extend_from_slice(piece);
            loop {
                match cutter.next() {
                    Cut::Object(line) => messages.push(String::from_utf8_lossy(&line).into_owned()),
                    Cut::Log(bytes) => logs.push_str(&String::from_utf8_lossy(&bytes)),
                    Cut::TooLong => messages.push("too long".into()),
                    Cut::Nothing => break,
                }
            }
        }
        (messages, logs)
    }

    #[test]
    fn the_first_byte_distinguishes_messages_from_logs() {
        let (messages, logs) = cut(&[b"hello\n  {\"id\":1}\n\n[1]\n{}\nrest"], 100);
        assert_eq!(messages, ["  {\"id\":1}", "{}"]);
        assert_eq!(logs, "hello\n\n[1]\nrest");
    }

    #[test]
    fn a_line_may_arrive_byte_by_byte() {
        let text = b"log\n{\"id\":1}\n {\"id\":2}\nlast\n";
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        let (messages, logs) = cut(&pieces, 100);
        assert_eq!(messages, ["{\"id\":1}", " {\"id\":2}"]);
        assert_eq!(logs, "log\nlast\n");
    }

    #[test]
    fn a_message_beyond_the_limit_is_dropped_and_reported() {
        let (messages, logs) = cut(&[b"{12345", b"678", b"9\n{}\n"], 8);
        assert_eq!(messages, ["too long", "{}"]);
        assert_eq!(logs, "{123456789\n");
        let (messages, _) = cut(&[b"{1234567\n"], 8);
        assert_eq!(messages, ["{1234567"]);
    }

    #[test]
    fn a_line_of_spaces_is_a_log() {
        let spaces = vec![b' '; MOST_SPACES + 1];
        let (messages, logs) = cut(&[&spaces, b"{}\n"], 8000);
        assert!(messages.is_empty(), "{messages:?}");
        assert_eq!(logs.len(), MOST_SPACES + 4);
    }

    /// Feeds 8 MiB byte by byte: a reader that examined all spaces again each time would take hours.
    #[test]
    fn spaces_that_arrive_one_by_one_are_examined_once() {
        let began = tokio::time::Instant::now();
        let mut cutter = Cutter { buffer: BytesMut::new(), place: LinePlace::START, limit: 64 << 20 };
        let mut cut = 0;
        for _ in 0..8 << 20 {
            cutter.buffer.extend_from_slice(b" ");
            if let Cut::Log(bytes) = cutter.next() {
                cut += bytes.len();
            }
        }
        assert_eq!(cut, 8 << 20);
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
