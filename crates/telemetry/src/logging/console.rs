//! A `tracing` subscriber for a host that has none. It writes one line per event to standard error.
//!
//! Logging never waits for the reader of standard error: lines go into a bounded queue, and a thread writes them. If
//! nobody reads, lines are dropped and counted.
//!
//! Written here instead of using `tracing-appender`: its writer flushes only when its guard is dropped, and a process that ends
//! by `exit` drops none. A stop must wait for its last lines, for a bounded time ([`FLUSH_TIMEOUT`]).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::watch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use super::{OUTPUT, somebody_says};

/// The most bytes that wait to be written: enough for a burst of a worker's output.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// How long a stopping engine waits for its last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Installs the console, unless the host has a subscriber.
pub(super) fn install() {
    if !tracing::dispatcher::get_default(tracing::Dispatch::is::<NoSubscriber>) {
        return;
    }
    let ours = dynamic_filter_fn(|metadata, _| {
        let target = metadata.target();
        let is_ours = target == "snakepit" || target.starts_with("snakepit::");
        // The reader of a worker's output decides whether its lines are logged.
        is_ours && (target == OUTPUT || somebody_says(*metadata.level()))
    });
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(ConsoleWriter).with_filter(ours);
    // A subscriber that was set meanwhile is kept.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
}

/// Waits until all lines so far are written, if someone reads them.
pub(super) async fn flush() {
    let Some(console) = CONSOLE.get() else { return };
    let queued = console.queue().queued;
    let mut written = console.written.subscribe();
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, written.wait_for(|written| *written >= queued)).await;
}

/// The console, started by the first line.
static CONSOLE: OnceLock<Arc<Console>> = OnceLock::new();

#[derive(Default)]
struct LogQueue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The number of lines that were ever queued.
    queued: u64,
    dropped: u64,
    /// Whether the writer thread failed to start.
    is_disabled: bool,
}

struct Console {
    queue: Mutex<LogQueue>,
    filled: Condvar,
    /// The number of lines that were ever written.
    written: watch::Sender<u64>,
}

impl Console {
    fn start() -> Arc<Self> {
        let console = Arc::new(Self {
            queue: Mutex::default(),
            filled: Condvar::new(),
            written: watch::Sender::new(0),
        });
        let writer = Arc::clone(&console);
        let thread = std::thread::Builder::new().name("snakepit-console".into());
        console.queue().is_disabled = thread.spawn(move || writer.write_lines()).is_err();
        console
    }

    fn queue(&self) -> MutexGuard<'_, LogQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.is_disabled || queue.bytes + line.len() > QUEUE_BYTES {
            queue.dropped += 1;
            return;
        }
        queue.bytes += line.len();
        queue.queued += 1;
        queue.lines.push_back(line.to_owned());
        drop(queue);
        self.filled.notify_one();
    }

    fn write_lines(&self) {
        loop {
            let mut queue = self.queue();
            let (line, dropped) = loop {
                if let Some(line) = queue.lines.pop_front() {
                    queue.bytes -= line.len();
                    break (line, std::mem::take(&mut queue.dropped));
                }
                queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            write(&line);
            if dropped > 0 {
                write(
                    format!("snakepit: {dropped} lines were dropped: standard error was not read in time\n")
                        .as_bytes(),
                );
            }
            self.written.send_modify(|written| *written += 1);
        }
    }
}

/// Writes without the lock of `std::io::stderr`, because other code must not block on it while nobody reads. Drops what
/// cannot be written.
fn write(mut bytes: &[u8]) {
    let stderr = rustix::stdio::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr, bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut ready = [rustix::event::PollFd::new(&stderr, rustix::event::PollFlags::OUT)];
                if rustix::event::poll(&mut ready, None).is_err_and(|error| error != Errno::INTR) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// A writer that queues each event as one line.
struct ConsoleWriter;

impl MakeWriter<'_> for ConsoleWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl io::Write for ConsoleWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        CONSOLE.get_or_init(Console::start).push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_dropped_lines_are_counted() {
        let console =
            Console { queue: Mutex::default(), filled: Condvar::new(), written: watch::Sender::new(0) };
        let line = vec![b'x'; QUEUE_BYTES / 4];
        for _ in 0..6 {
            console.push(&line);
        }
        let queue = console.queue();
        assert_eq!((queue.lines.len(), queue.bytes, queue.queued, queue.dropped), (4, QUEUE_BYTES, 4, 2));
    }
}
