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
/// How long the second text may be in coming before it is asked for again.
const SIGNAL_AGAIN: Duration = Duration::from_millis(25);
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
        // Nothing marks the end of the text. The second signal waits until the handler of the first is done: when a
        // thread is named again, the first text is complete. With several threads another one may take the second
        // signal while the first is still writing, and drops it: then it is sent again.
        worker.signal_main(signal).ok()?;
        let mut text = Vec::new();
        loop {
            worker.signal_main(signal).ok()?;
            let more = tokio::time::timeout(SIGNAL_AGAIN, read_to_second(&mut reader, &mut text)).await;
            match more {
                Err(_) => {}
                Ok(None) => return None,
                Ok(Some(end)) => {
                    text.truncate(end);
                    return Some(String::from_utf8_lossy(&text).into_owned());
                }
            }
        }
    }
}

/// Reads until a second text begins, and says where.
async fn read_to_second(reader: &mut pipe::Receiver, text: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(end) = end_of_first(text) {
            return Some(end);
        }
        if text.len() > LIMIT || reader.read_buf(text).await.ok()? == 0 {
            return None;
        }
    }
}

/// Where the second text begins, if it has begun: each text names a thread once, in a line such as
/// `Current thread 0x00007f1c (most recent call first):`. Its first line need not come again, for threads come and go.
fn end_of_first(text: &[u8]) -> Option<usize> {
    let mut seen = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let complete = line.ends_with(b"\n");
        if let Some(thread) = thread_of(line).filter(|_| complete) {
            if seen.contains(&thread) {
                return Some(start);
            }
            seen.push(thread);
        }
        start += line.len();
    }
    None
}

/// The number of the thread whose stack follows this line.
fn thread_of(line: &[u8]) -> Option<&[u8]> {
    let is_header = line.starts_with(b"Thread 0x") || line.starts_with(b"Current thread 0x");
    line.split(|&byte| byte == b' ').find(|word| is_header && word.starts_with(b"0x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_text_ends_where_a_thread_is_named_again() {
        let first = b"Thread 0x1 (most recent call first):\n  File a\nCurrent thread 0x2 (most recent call first):\n  File b\n";
        assert_eq!(end_of_first(first), None);
        let again = |second: &str| end_of_first(&[first, second.as_bytes()].concat());
        assert_eq!(again("Thread 0x1 (most recent call first):\n  Fi"), Some(first.len()));
        assert_eq!(again("Thread 0x1 (most rec"), None, "a line that is not complete");
        // The signal may be taken by another thread, and the first thread may be gone.
        assert_eq!(again("Thread 0x2 (most recent call first):\n"), Some(first.len()));
    }
}
