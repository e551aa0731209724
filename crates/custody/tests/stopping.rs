//! The end of workers and runs: the barrier, its configuration, its events and what it leaves.

mod support;

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use snakepit_custody::{Command, CustodyEvent, CustodyOptions, ExitStatus, SpawnError, Tier};
use support::{Home, lines_of, shell};

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
fn a_worker_that_ignores_term_is_killed_after_the_grace_and_counted() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().cleanup_on_stop_timeout_ms(200));
    let events = run.events().unwrap();
    let (worker, mut lines) = lines_of(&run, shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
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

#[test]
fn cleanup_ends_the_workers_and_leaves_the_run_open() {
    let home = Home::new();
    let run = home.open();
    run.spawn(Command::new("sleep").arg("1000")).unwrap();
    assert_eq!(run.cleanup().stopped, 1);
    assert!(run.workers().is_empty());
    assert_eq!(run.spawn(Command::new("true")).unwrap().wait().status, ExitStatus::Code(0));
}

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

#[test]
fn an_exit_is_recorded_before_the_intent_of_the_replacement() {
    let home = Home::new();
    let run = home.open();
    for _ in 0..50 {
        run.spawn(Command::new("true")).unwrap().wait();
    }
    let kinds: Vec<(u8, u64)> = support::records(&run);
    for key in 2..=50 {
        let exit = kinds.iter().position(|entry| *entry == (6, key - 1)).unwrap();
        let intent = kinds.iter().position(|entry| *entry == (4, key)).unwrap();
        let record = kinds.iter().position(|entry| *entry == (5, key)).unwrap();
        assert!(exit < intent && intent < record, "worker {key}");
    }
}

#[test]
fn the_ledger_does_not_grow_for_ever() {
    let home = Home::new();
    let run = home.open();
    let lasting = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    for _ in 0..3000 {
        run.spawn(Command::new("/bin/true")).unwrap().wait();
    }
    assert!(support::records(&run).len() < 9000);
    // Living workers are still recorded after the file was rewritten.
    let living = home.living_on_record();
    assert_eq!(living.len(), 1);
    assert_eq!(living[0].pid, Some(lasting.pid()));
    assert!(living[0].alive);
}

#[test]
fn a_run_names_its_tier_and_the_probe_says_that_it_works() {
    let home = Home::new();
    let run = home.open();
    let auto = if cfg!(portable) { Tier::Group } else { Tier::Shim };
    assert_eq!(run.tier(), auto);
    assert!(
        snakepit_custody::probe().tiers.iter().any(|found| found.tier == run.tier() && found.works.is_ok())
    );
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
