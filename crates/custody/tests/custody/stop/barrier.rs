//! The stop barrier: its order, its configuration and its events.

use std::time::{Duration, Instant};

use snakepit_custody::{Command, CustodyEvent, CustodyOptions, ExitStatus};

use crate::support::{Home, deaf_worker, lines_of, shell};

#[test]
fn a_worker_that_ignores_term_is_killed_after_the_grace_and_counted() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().cleanup_on_stop_timeout_ms(200));
    let events = run.events().unwrap();
    let worker = deaf_worker(&run);
    let began = Instant::now();
    let report = run.stop();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!((report.stopped, report.killed), (1, 1));
    assert_eq!(worker.wait().status, ExitStatus::Signal(libc::SIGKILL));
    let events = events.drain();
    assert!(
        matches!(
            events[..],
            [
                CustodyEvent::Spawned { .. },
                CustodyEvent::CleanupStart { workers: 1, .. },
                CustodyEvent::Exited { .. },
                CustodyEvent::CleanupSuccess { workers: 1, killed: 1, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn a_stopped_worker_gets_term_and_goes_on_to_handle_it() {
    let home = Home::new();
    let run = home.open();
    let (worker, mut lines) =
        lines_of(&run, shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
    worker.signal(libc::SIGSTOP).unwrap();
    let report = worker.stop(Duration::from_secs(10));
    assert_eq!(report.killed, 0);
    assert_eq!(worker.wait().status, ExitStatus::Code(7));
}

/// Returns a worker whose child reports TERM. The worker itself runs `on_term` when it gets TERM.
fn parent_and_child(on_term: &str) -> Command {
    let child = "(trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.1; done)";
    shell(&format!("trap '{on_term}' TERM; {child} & wait; wait"))
}

#[test]
fn term_reaches_the_whole_group() {
    let home = Home::new();
    let run = home.open();
    // The main process outlives the child's report, because its end makes the shim kill the child.
    let (worker, mut lines) = lines_of(&run, parent_and_child("wait; exit 3"));
    assert_eq!(lines.next().unwrap(), "ready");
    worker.signal(libc::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap(), "child");
    assert_eq!(worker.wait().status, ExitStatus::Code(3));
}

#[test]
fn without_process_group_kill_term_reaches_the_main_process_alone() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().without_process_group_kill());
    let (worker, mut lines) = lines_of(&run, parent_and_child("exit 3"));
    assert_eq!(lines.next().unwrap(), "ready");
    worker.signal(libc::SIGTERM).unwrap();
    assert_eq!(worker.wait().status, ExitStatus::Code(3));
    // The child printed nothing and is gone nevertheless.
    assert_eq!(lines.next(), None);
}

#[test]
fn without_cleanup_on_stop_a_stop_kills_at_once() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().without_cleanup_on_stop());
    let (worker, mut lines) =
        lines_of(&run, shell("trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
    assert_eq!(run.stop().stopped, 1);
    assert_eq!(worker.wait().status, ExitStatus::Signal(libc::SIGKILL));
    assert_eq!(lines.next(), None);
    assert!(home.is_empty());
}

#[test]
fn without_cleanup_on_stop_a_cleanup_kills_at_once() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().without_cleanup_on_stop());
    let (worker, mut lines) =
        lines_of(&run, shell("trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
    assert_eq!(run.cleanup().killed, 1);
    assert_eq!(worker.wait().status, ExitStatus::Signal(libc::SIGKILL));
    assert_eq!(lines.next(), None);
}

#[test]
fn a_worker_that_was_asked_to_end_gets_no_second_term_from_the_stop() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().cleanup_on_stop_timeout_ms(300));
    // To many programs, a second TERM means that they should leave everything as it is.
    let (worker, mut lines) =
        lines_of(&run, shell("trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
    worker.ask_to_end();
    assert_eq!(lines.next().unwrap(), "asked");
    assert!(worker.try_wait().is_none(), "it is asked, and nothing more");
    assert_eq!(run.stop().killed, 1);
    assert_eq!(lines.next(), None);
}
