//! The end of a run, and what it leaves.

use snakepit_custody::{Command, ExitStatus, SpawnError};

use crate::support::Home;

#[test]
fn a_clean_stop_removes_the_runs_directory_and_gives_the_same_report_twice() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    assert!(run.dir().exists());
    let report = run.stop();
    assert_eq!((report.stopped, report.killed), (1, 0));
    assert_eq!(worker.wait().status, ExitStatus::Signal(libc::SIGTERM));
    assert!(home.is_empty());
    assert_eq!(run.stop().took, report.took);
    assert!(matches!(run.spawn(Command::new("true")), Err(SpawnError::Stopped)));
}

#[test]
fn dropping_the_last_handle_stops_the_run() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    let second = run.clone();
    drop(run);
    assert!(worker.try_wait().is_none());
    drop(second);
    assert!(worker.try_wait().is_some());
    assert!(home.is_empty());
}

#[test]
fn cleanup_ends_the_workers_and_leaves_the_run_open() {
    let home = Home::new();
    let run = home.open();
    run.spawn(Command::new("sleep").arg("1000")).unwrap();
    assert_eq!(run.cleanup().stopped, 1);
    assert!(run.workers().is_empty());
    assert_eq!(run.spawn(Command::new("true")).unwrap().wait().status, ExitStatus::Code(0));
}
