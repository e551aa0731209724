//! A subscriber for a host that has none: one line per event on standard error.
//!
//! Whoever speaks never waits for whoever reads: lines go into a bounded queue, and a thread of their own writes them.
//! When nobody reads, lines are left out and counted.

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

/// The most bytes that wait to be written: a burst of a worker that prints a lot.
const ROOM: usize = 4 * 1024 * 1024;
/// How long an engine that stops waits for its last lines to be written.
const FLUSH_PATIENCE: Duration = Duration::from_millis(200);

/// Installs it, unless there is one.
pub(super) fn install() {
    if !tracing::dispatcher::get_default(tracing::Dispatch::is::<NoSubscriber>) {
        return;
    }
    let ours = dynamic_filter_fn(|metadata, _| {
        let target = metadata.target();
        let is_ours = target == "snakepit" || target.starts_with("snakepit::");
        // Whether lines of workers are told was decided where they are read.
        is_ours && (target == OUTPUT || somebody_says(*metadata.level()))
    });
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines).with_filter(ours);
    // If another one was set meanwhile, that one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
}

/// Until all that was said so far is written, if somebody reads it.
pub(super) async fn flush() {
    let Some(console) = CONSOLE.get() else { return };
    let said = console.queue().said;
    let mut written = console.written.subscribe();
    let _ = tokio::time::timeout(FLUSH_PATIENCE, written.wait_for(|written| *written >= said)).await;
}

/// There is one once something was said.
static CONSOLE: OnceLock<Arc<Console>> = OnceLock::new();

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many lines were ever put in.
    said: u64,
    dropped: u64,
    /// There is no thread that could write.
    mute: bool,
}

struct Console {
    queue: Mutex<Queue>,
    bell: Condvar,
    /// How many lines were ever taken out and written.
    written: watch::Sender<u64>,
}

impl Console {
    fn start() -> Arc<Self> {
        let console =
            Arc::new(Self { queue: Mutex::default(), bell: Condvar::new(), written: watch::Sender::new(0) });
        let writer = Arc::clone(&console);
        let thread = std::thread::Builder::new().name("snakepit-console".into());
        console.queue().mute = thread.spawn(move || writer.write_lines()).is_err();
        console
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.mute || queue.bytes + line.len() > ROOM {
            queue.dropped += 1;
            return;
        }
        queue.bytes += line.len();
        queue.said += 1;
        queue.lines.push_back(line.to_owned());
        drop(queue);
        self.bell.notify_one();
    }

    fn write_lines(&self) {
        loop {
            let mut queue = self.queue();
            let (line, dropped) = loop {
                if let Some(line) = queue.lines.pop_front() {
                    queue.bytes -= line.len();
                    break (line, std::mem::take(&mut queue.dropped));
                }
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            write(&line);
            if dropped > 0 {
                write(
                    format!("snakepit: {dropped} lines were left out: nobody read them in time\n").as_bytes(),
                );
            }
            self.written.send_modify(|written| *written += 1);
        }
    }
}

/// Past the lock of `std::io::stderr`, which others must not find taken while nobody reads. What cannot be written is not.
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

/// Where events are written to, each by one write.
struct Lines;

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        CONSOLE.get_or_init(Console::start).say(line);
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
    fn what_waits_is_bounded_and_what_is_left_out_is_counted() {
        let console =
            Console { queue: Mutex::default(), bell: Condvar::new(), written: watch::Sender::new(0) };
        let line = vec![b'x'; ROOM / 4];
        for _ in 0..6 {
            console.say(&line);
        }
        let queue = console.queue();
        assert_eq!((queue.lines.len(), queue.bytes, queue.said, queue.dropped), (4, ROOM, 4, 2));
    }
}
