//! Asks a worker where its threads are, even while its interpreter is busy: a signal, and a pipe for the answer.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

use crate::custody;

/// How long a worker may take to answer: a handler in C runs at once, unless the process is stopped or swapped out.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most text that is read.
const LIMIT: usize = 256 * 1024;

/// The host's end of the pipe.
#[derive(Debug)]
pub(crate) struct StackPipe(Mutex<pipe::Receiver>);

impl StackPipe {
    /// The pipe, and the end for the worker. Neither end blocks: a worker whose stacks nobody reads drops them.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        use rustix::pipe::PipeFlags;
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let reader = pipe::Receiver::from_owned_fd(reader)?;
        Ok((Self(Mutex::new(reader)), writer))
    }

    /// The stacks of all threads, as text.
    pub(crate) async fn ask(&self, worker: &custody::Worker, signal: i32) -> Option<String> {
        tokio::time::timeout(PATIENCE, self.ask_patiently(worker, signal)).await.ok().flatten()
    }

    async fn ask_patiently(&self, worker: &custody::Worker, signal: i32) -> Option<String> {
        let mut reader = self.0.lock().await;
        // What an earlier, impatient question left behind.
        let mut scrap = [0; 4096];
        while matches!(reader.try_read(&mut scrap), Ok(1..)) {}
        // Nothing marks the end of the text. The second signal waits until the handler of the first is done: when the
        // first line comes again, the first text is complete.
        worker.signal_main(signal).ok()?;
        worker.signal_main(signal).ok()?;
        let mut text = Vec::new();
        loop {
            if let Some(end) = end_of_first(&text) {
                text.truncate(end);
                return Some(String::from_utf8_lossy(&text).into_owned());
            }
            if text.len() > LIMIT || reader.read_buf(&mut text).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// Where the second text begins, if it has begun.
fn end_of_first(text: &[u8]) -> Option<usize> {
    let first_line = text.iter().position(|&byte| byte == b'\n')? + 1;
    let line = &text[..first_line];
    let again = text[first_line..].windows(line.len()).position(|window| window == line)?;
    Some(first_line + again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_text_ends_where_its_first_line_comes_again() {
        let first = b"Thread 1:\n  File a\nCurrent thread 2:\n  File b\n";
        assert_eq!(end_of_first(first), None);
        assert_eq!(end_of_first(&[first, &b"Thread 1:\n  Fi"[..]].concat()), Some(first.len()));
        assert_eq!(end_of_first(b"Thread"), None);
    }
}
