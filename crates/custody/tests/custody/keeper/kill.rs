//! What the keeper ends after a worker.

use std::time::{Duration, Instant};

use crate::support::{self, Home, lines_of, shell};

#[test]
#[cfg_attr(portable, ignore = "a daemon escapes from the tier group and would outlive the test")]
fn the_end_of_a_worker_that_left_a_daemon_is_reported_without_delay() {
    let home = Home::new();
    let run = home.open();
    // Takes the best of several: an end that waits for nothing is quick at least once, however busy the machine is.
    let quickest = (0..20).map(|_| {
        let (worker, mut lines) = lines_of(&run, shell("setsid sh -c 'echo ready; exec sleep 1000' & wait"));
        assert_eq!(lines.next().unwrap(), "ready");
        let began = Instant::now();
        support::kill(worker.pid());
        worker.wait();
        began.elapsed()
    });
    assert!(quickest.min().unwrap() < Duration::from_millis(50));
}
