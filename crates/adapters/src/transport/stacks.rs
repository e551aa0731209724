//! Asks a worker for the stacks of its threads, even while its interpreter is busy: by a signal, answered through a
//! pipe. Then asks for the stacks of its tasks, which only the worker's own code knows: [`super::task_stacks`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use snakepit_protocol::message::Signals;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, MutexGuard};

use super::task_stacks;
use crate::call::CallId;
use crate::custody;

/// The time limit for an answer. A handler in C runs at once, unless the process is stopped or swapped out.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait for a text before the signal is sent again.
const SIGNAL_AGAIN: Duration = Duration::from_millis(25);
/// The maximum length of the text.
const LIMIT: usize = 256 * 1024;

/// The signals that make a worker write its stacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackSignals {
    pub(crate) threads: i32,
    /// `None` if the worker cannot write the stacks of its tasks.
    pub(crate) tasks: Option<i32>,
}

impl StackSignals {
    /// Returns the signals that make the worker write its stacks, among those that READY names.
    pub(crate) fn of(signals: Signals) -> Option<Self> {
        Some(Self { threads: signals.stack?, tasks: signals.tasks })
    }
}

/// The host's end of the pipe.
#[derive(Debug)]
pub(crate) struct StackPipe(Mutex<pipe::Receiver>);

impl StackPipe {
    /// Creates the pipe. Returns the host's end and the worker's. Neither end blocks: a worker drops stacks that are
    /// not read.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        Ok((Self(Mutex::new(reader)), writer.into()))
    }

    /// Returns the stacks of the tasks, of one call if given, followed by the stacks of all threads.
    pub(crate) async fn ask(
        &self,
        worker: &custody::WorkerProcess,
        signals: StackSignals,
        call: Option<CallId>,
    ) -> Option<String> {
        let asked = tokio::time::timeout(PATIENCE, self.ask_threads(worker, signals.threads)).await;
        let (mut reader, threads) = asked.ok().flatten()?;
        let tasks = match signals.tasks {
            Some(signal) if task_stacks::runs_tasks(&threads) => {
                task_stacks::ask(&mut reader, worker, signal, call).await
            }
            Some(_) | None => None,
        };
        Some(tasks.map_or_else(|| threads.clone(), |tasks| format!("{tasks}\n{threads}")))
    }

    async fn ask_threads(
        &self,
        worker: &custody::WorkerProcess,
        signal: i32,
    ) -> Option<(MutexGuard<'_, pipe::Receiver>, String)> {
        let mut reader = self.0.lock().await;
        // The rest of the answer to an earlier request that timed out.
        let mut scrap = [0; 4096];
        while matches!(reader.try_read(&mut scrap), Ok(1..)) {}
        // Nothing marks the end of the text. The second signal waits until the handler of the first has returned, so
        // the first text is complete once a thread is named again. If there are several threads, another thread may
        // take the second signal while the first still writes, and drop it. The signal is then sent again. Two threads
        // that take signals at the same time both write, so the second signal is sent when the first text has begun.
        let mut text = Vec::new();
        while text.is_empty() {
            worker.signal_main(signal).ok()?;
            let read = tokio::time::timeout(SIGNAL_AGAIN, reader.read_buf(&mut text)).await;
            if let Ok(read) = read
                && read.ok()? == 0
            {
                return None;
            }
        }
        loop {
            worker.signal_main(signal).ok()?;
            let more = tokio::time::timeout(SIGNAL_AGAIN, read_to_second(&mut reader, &mut text)).await;
            match more {
                Err(_) => {}
                Ok(None) => return None,
                Ok(Some(end)) => {
                    text.truncate(end);
                    text.drain(..begin_of_first(&text));
                    task_stacks::take_out(&mut text);
                    return Some((reader, readable(String::from_utf8_lossy(&text).lines())));
                }
            }
        }
    }
}

/// Reads until a second text begins. Returns where it begins.
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

/// Returns where the first whole thread begins. The frames before it are the rest of the second text of an earlier
/// request.
fn begin_of_first(text: &[u8]) -> usize {
    let mut start = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if thread_of(line).is_some() || line.starts_with(STACK_HEADER.as_bytes()) {
            return start;
        }
        start += line.len();
    }
    0
}

/// Returns where the second text begins, if it has begun. Each text names a thread once, in a line such as `Current
/// thread 0x00007f1c (most recent call first):`. The first line of the first text need not occur again, because
/// threads come and go.
///
/// A thread that runs no code yet does not count. Until Python 3.11, it has the number of the thread that started it,
/// which therefore occurs twice in one text.
fn end_of_first(text: &[u8]) -> Option<usize> {
    let mut seen = Vec::new();
    let mut named = None;
    let mut start = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n').take_while(|line| line.ends_with(b"\n")) {
        if let Some((thread, at)) = named.take().filter(|_| line.trim_ascii() != NO_FRAME.as_bytes()) {
            if seen.contains(&thread) {
                return Some(at);
            }
            seen.push(thread);
        }
        named = thread_of(line).map(|thread| (thread, start));
        start += line.len();
    }
    None
}

/// Replaces the frames of a thread that runs no Python code, or none yet.
const NO_FRAME: &str = "<no Python frame>";

/// Moves the stack of a crash out of the last lines that a worker printed. `faulthandler` writes it there.
pub(crate) fn take_crash(printed: &mut Vec<String>) -> Option<String> {
    let is_crash = |line: &String| line.starts_with("Fatal Python error: ");
    // If there are many threads, the first line may already have been dropped.
    let is_header = |line: &String| thread_of(line.as_bytes()).is_some();
    let begin = printed.iter().rposition(is_crash).or_else(|| printed.iter().position(is_header))?;
    let tail = printed.split_off(begin);
    let (stack, others): (Vec<String>, Vec<String>) = tail
        .into_iter()
        .partition(|line| is_header(line) || line.starts_with(STACK_HEADER) || line.starts_with("  "));
    printed.extend(others);
    Some(readable(stack.iter().map(String::as_str))).filter(|stack| !stack.is_empty())
}

/// The header that faulthandler writes if it does not know the threads.
const STACK_HEADER: &str = "Stack (most recent call first):";

/// Puts the current thread first. Omits the thread that answers beats, and threads without a frame if any thread has
/// one.
fn readable<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut threads: Vec<Vec<&str>> = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        match threads.last_mut() {
            Some(thread) if thread_of(line.as_bytes()).is_none() => thread.push(line),
            _ => threads.push(vec![line]),
        }
    }
    threads.retain(|thread| !matches!(thread[..], [_, frame] if frame.ends_with(BEATING)));
    let has_frame = |thread: &Vec<&str>| !matches!(thread[..], [_, frame] if frame.trim() == NO_FRAME);
    if threads.iter().any(has_frame) {
        threads.retain(has_frame);
    }
    threads.sort_by_key(|thread| !thread.iter().any(|line| line.starts_with("Current thread")));
    let lines: Vec<&str> = threads.into_iter().flatten().collect();
    lines.join("\n")
}

/// The end of the only frame of the thread that answers beats.
const BEATING: &str = " in _answer_beats";

/// Returns the number of the thread whose stack follows this line.
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
        assert_eq!(again("Thread 0x1 (most recent call first):\n  File a\n"), Some(first.len()));
        assert_eq!(again("Thread 0x1 (most recent call first):\n  Fi"), None, "a frame that is not complete");
        assert_eq!(again("Thread 0x1 (most rec"), None, "a line that is not complete");
        // Another thread may take the signal, and the first thread may have ended.
        assert_eq!(again("Thread 0x2 (most recent call first):\n  File b\n"), Some(first.len()));
        assert_eq!(again("Thread 0x2 (most recent call first):\n"), None, "what follows decides");
    }

    #[test]
    fn a_thread_that_has_not_begun_is_not_taken_for_the_one_that_started_it() {
        let unborn = "Thread 0x1 (most recent call first):\n  <no Python frame>\n\n";
        let main = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 2 in works\n";
        let twice = format!("{unborn}{main}{unborn}{main}");
        assert_eq!(end_of_first(format!("{unborn}{main}{unborn}").as_bytes()), None);
        let end = end_of_first(twice.as_bytes()).expect("the second text");
        assert_eq!(readable(twice[..end].lines()), main.trim_end());
        assert_eq!(readable(unborn.lines()), unborn.trim_end(), "better than nothing");
    }

    #[test]
    fn the_thread_that_is_meant_comes_first_and_the_one_that_beats_is_left_out() {
        let text = "Thread 0x1 (most recent call first):\n  File \"/s/lifecycle.py\", line 9 in _answer_beats\n\n\
                    Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in waits\n\n\
                    Current thread 0x3 (most recent call first):\n  File \"a.py\", line 2 in works\n";
        let expected = "Current thread 0x3 (most recent call first):\n  File \"a.py\", line 2 in works\n\
                        Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in waits";
        assert_eq!(readable(text.lines()), expected);
    }

    #[test]
    fn the_stack_of_a_crash_is_taken_out_of_what_was_printed() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let mut printed = lines(
            "  File is indented, and printed before\nFatal Python error: Segmentation fault\n\
             Current thread 0x3 (most recent call first):\n  File \"a.py\", line 2 in works\n  ...\n\
             a line of another process\nExtension modules: numpy (total: 1)",
        );
        let stack = take_crash(&mut printed).expect("a stack");
        assert_eq!(
            stack,
            "Current thread 0x3 (most recent call first):\n  File \"a.py\", line 2 in works\n  ..."
        );
        let rest = "  File is indented, and printed before\nFatal Python error: Segmentation fault\n\
                    a line of another process\nExtension modules: numpy (total: 1)";
        assert_eq!(printed, lines(rest));
        let mut beheaded =
            lines("  File \"b.py\", line 1 in lost\nCurrent thread 0x3 (most recent call first):\n  File x");
        assert_eq!(
            take_crash(&mut beheaded).as_deref(),
            Some("Current thread 0x3 (most recent call first):\n  File x")
        );
        let mut harmless = lines("one\n  two");
        assert_eq!((take_crash(&mut harmless), harmless.len()), (None, 2));
    }
}
