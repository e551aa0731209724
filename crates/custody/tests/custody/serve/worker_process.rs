//! What the handle of a worker tells while the worker runs, and at its end.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use snakepit_custody::{Command, ExitStatus};

use crate::support::{Home, shell};

/// An executor for one future that has to complete soon.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(deadline.saturating_duration_since(Instant::now())),
        }
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn exited_is_a_future_that_any_executor_can_wait_for() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(shell("exit 5")).unwrap();
    let exit = block_on(worker.exited());
    assert_eq!(exit.status, ExitStatus::Code(5));
    assert!(exit.max_rss_kib > 0);
}

#[test]
fn a_stopped_and_continued_worker_is_reported_at_once() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    assert_eq!(worker.halted(), None);
    worker.signal(libc::SIGSTOP).unwrap();
    assert_eq!(block_on(worker.halt_changed(None)), Some(libc::SIGSTOP));
    assert_eq!(worker.halted(), Some(libc::SIGSTOP));
    worker.signal(libc::SIGCONT).unwrap();
    assert_eq!(block_on(worker.halt_changed(Some(libc::SIGSTOP))), None);
    assert_eq!(worker.halted(), None);
}
