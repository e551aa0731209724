//! Dead runs of other hosts.

use std::time::Duration;

use snakepit_custody::{CustodyEvent, CustodyOptions};

use crate::support::Home;

#[test]
fn a_dead_run_of_another_host_is_reaped_while_this_one_lives() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().reap_interval(Duration::from_millis(50)));
    let events = run.events().unwrap();
    // A run whose host is gone: the OPEN record of the test's own run, with a pid that cannot exist any more.
    let dead = home.forge_dead_run(&run);
    let reaped = loop {
        if let CustodyEvent::Reaped { run, killed } = events.next_within(Duration::from_secs(10)).unwrap() {
            break (run.to_string(), killed);
        }
    };
    assert_eq!(reaped, (dead.clone(), Vec::new()));
    assert!(!home.path().join("runs").join(dead).exists());
    assert!(run.dir().exists());
}
