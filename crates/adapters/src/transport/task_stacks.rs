//! Asks a worker for the stacks of its tasks. The stack of a thread shows only that its event loop waits. What a
//! coroutine awaits is known only to the interpreter, whose code answers a separate signal.

use std::ops::Range;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::call::CallId;
use crate::custody;
use crate::harmless;

/// The time limit for an answer, once the stacks of the threads are known. Code that holds the interpreter prevents
/// any answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long to wait before the signal is sent again. A signal that arrives just before the main thread begins to wait
/// is noticed only with the next one.
const SIGNAL_AGAIN: Duration = Duration::from_millis(20);
/// The maximum number of bytes to read: the text, and the stacks that threads write around it.
const LIMIT: usize = 256 * 1024;
/// The bytes before and after the text. They occur nowhere else.
const BEGIN: u8 = 0x02;
const END: u8 = 0x03;

/// Reports whether the stack of a thread shows an event loop: in the standard library, or in our SDK, which runs any
/// loop.
pub(super) fn runs_tasks(threads: &str) -> bool {
    threads.contains("/asyncio/") || threads.contains("snakepit/concurrent/tasks.py")
}

/// Returns the stacks of the tasks, of one call if given.
pub(super) async fn ask(
    reader: &mut pipe::Receiver,
    worker: &custody::WorkerProcess,
    signal: i32,
    call: Option<CallId>,
) -> Option<String> {
    let told = tokio::time::timeout(PATIENCE, ask_patiently(reader, worker, signal)).await.ok().flatten()?;
    of_call(&told, call)
}

async fn ask_patiently(
    reader: &mut pipe::Receiver,
    worker: &custody::WorkerProcess,
    signal: i32,
) -> Option<String> {
    let mut text = Vec::new();
    loop {
        worker.signal_main(signal).ok()?;
        if let Ok(read) = tokio::time::timeout(SIGNAL_AGAIN, read_to_end(reader, &mut text)).await {
            return read.then(|| String::from_utf8_lossy(between(&text).unwrap_or_default()).into_owned());
        }
    }
}

/// Reads until a text is complete. Returns false if there will be none.
async fn read_to_end(reader: &mut pipe::Receiver, text: &mut Vec<u8>) -> bool {
    while between(text).is_none() {
        if text.len() > LIMIT || !matches!(reader.read_buf(text).await, Ok(1..)) {
            return false;
        }
    }
    true
}

/// Returns the first complete text. Threads may write their stacks before and after it, but not into it.
fn between(bytes: &[u8]) -> Option<&[u8]> {
    place_of_text(bytes).map(|place| &bytes[place])
}

fn place_of_text(bytes: &[u8]) -> Option<Range<usize>> {
    let begin = bytes.iter().position(|&byte| byte == BEGIN)? + 1;
    let length = bytes[begin..].iter().position(|&byte| byte == END)?;
    Some(begin..begin + length)
}

/// Removes texts from the stacks of threads. They are late answers to an earlier request.
pub(super) fn take_out(bytes: &mut Vec<u8>) {
    while let Some(place) = place_of_text(bytes) {
        bytes.drain(place.start - 1..=place.end);
    }
}

/// Returns the tasks of a call, followed by the tasks whose call is unknown. Without a call, returns all tasks.
fn of_call(told: &str, call: Option<CallId>) -> Option<String> {
    let mut tasks: Vec<Vec<&str>> = Vec::new();
    for line in told.lines() {
        match tasks.last_mut() {
            Some(task) if !line.starts_with("Task") => task.push(line),
            _ => tasks.push(vec![line]),
        }
    }
    if let Some(call) = call {
        tasks.retain(|task| number_of(task[0]).is_none_or(|number| number == call.get()));
    }
    tasks.sort_by_key(|task| number_of(task[0]).is_none());
    let lines: Vec<&str> = tasks.into_iter().flatten().collect();
    (!lines.is_empty()).then(|| harmless(&lines.join("\n")).into_owned())
}

/// Returns the call that a task belongs to, as named in the line before its stack.
fn number_of(header: &str) -> Option<u64> {
    header.strip_prefix("Task of call ")?.split_once(':')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_among_the_stacks_of_threads() {
        assert_eq!(between(b"Thread 0x1\n  Fi\x02Task: a\n\x03le x"), Some(&b"Task: a\n"[..]));
        assert_eq!(between(b"\x02\x03"), Some(&b""[..]));
        assert_eq!((between(b"\x02Task"), between(b"Task\x03")), (None, None));
        let mut late = b"  Fi\x02Task: a\n\x03le \x02\x03x".to_vec();
        take_out(&mut late);
        assert_eq!(late, b"  File x");
    }

    #[test]
    fn the_tasks_of_other_calls_are_left_out() {
        let own = "Task of call 7: fetch (most recent call first):\n  File \"a.py\", line 1 in fetch";
        let other = "Task of call 77: fetch (most recent call first):\n  File \"a.py\", line 2 in fetch";
        let unknown = "Task: Task-3 (most recent call first):\n  File \"a.py\", line 3 in other";
        let told = [other, unknown, own].join("\n");
        let seven = Some(CallId::new(7));
        assert_eq!(of_call(&told, seven).as_deref(), Some([own, unknown].join("\n").as_str()));
        assert_eq!(of_call(&told, None).as_deref(), Some([other, own, unknown].join("\n").as_str()));
        assert_eq!(of_call(other, seven), None);
        assert_eq!(of_call("", None), None);
        assert_eq!(of_call("Task: \u{1b}[31m", None).as_deref(), Some("Task: \\u{1b}[31m"));
    }
}
