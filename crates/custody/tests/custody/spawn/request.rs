//! Spawns beside each other.

use snakepit_custody::{Command, SpawnError, Stdio, WorkerId};

use crate::support::Home;

#[test]
fn two_living_workers_cannot_have_one_name() {
    let home = Home::new();
    let run = home.open();
    let name = || WorkerId::new("only").unwrap();
    let first = run.spawn(Command::new("sleep").arg("1000").worker_id(name())).unwrap();
    let error = run.spawn(Command::new("true").worker_id(name())).unwrap_err();
    assert!(matches!(error, SpawnError::DuplicateWorker(_)), "{error}");
    first.kill().unwrap();
    first.wait();
    run.spawn(Command::new("true").worker_id(name())).unwrap().wait();
}

#[test]
fn a_hundred_workers_can_be_started_at_once() {
    let home = Home::new();
    let run = home.open();
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| run.spawn(Command::new("sleep").arg("1000").stdin(Stdio::Null)).unwrap());
        }
    });
    assert_eq!(run.workers().len(), 100);
    assert_eq!(home.living_on_record().len(), 100);
    let report = run.stop();
    assert_eq!((report.stopped, report.killed, report.survivors.len()), (100, 0, 0));
    assert!(home.is_empty());
}
