//! A keeper that dies, and the next one.

use std::time::Duration;

use snakepit_custody::{Command, CustodyEvent, ExitStatus};

use crate::support::{self, Home};

#[test]
fn a_keeper_that_dies_takes_the_workers_along_and_is_replaced() {
    let home = Home::new();
    let run = home.open();
    let events = run.events().unwrap();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    let keeper = run.keeper_pid().unwrap();
    support::kill(keeper);
    assert_eq!(worker.wait().status, ExitStatus::Lost);
    let mut heard = Vec::new();
    while !matches!(heard.last(), Some(CustodyEvent::KeeperRegained)) {
        heard.push(events.next_within(Duration::from_secs(10)).unwrap());
    }
    assert!(
        matches!(
            heard[..],
            [
                CustodyEvent::Spawned { .. },
                CustodyEvent::KeeperLost { workers: 1 },
                CustodyEvent::Exited { .. },
                CustodyEvent::KeeperRegained
            ]
        ),
        "{heard:?}"
    );
    assert_ne!(run.keeper_pid(), Some(keeper));
    assert_eq!(run.spawn(Command::new("true")).unwrap().wait().status, ExitStatus::Code(0));
    assert!(run.stop().is_clean());
    assert!(home.is_empty());
}
