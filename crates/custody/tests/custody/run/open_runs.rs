//! The emergency exit: the end of all runs of the process at once. Each test needs a process of its own.

use std::time::{Duration, Instant};

use snakepit_custody::{
    Command, CustodyEvent, CustodyOptions, ExitStatus, Run, SpawnError, StoppedRun, end_all, stop_all,
};

use crate::support::{Home, deaf_worker};

#[test]
fn every_run_is_ended_at_the_same_time_and_refuses_spawns_afterwards() {
    assert!(end_all(Duration::ZERO).is_empty());
    let homes = [Home::new(), Home::new(), Home::new()];
    let runs = homes.each_ref().map(Home::open);
    let workers = runs.each_ref().map(deaf_worker);
    let began = Instant::now();
    let reports = end_all(Duration::from_millis(300));
    let took = began.elapsed();
    let mut ended: Vec<_> = reports.iter().map(|stopped| stopped.run).collect();
    ended.sort();
    let mut opened = runs.each_ref().map(Run::id);
    opened.sort();
    assert_eq!(ended, opened);
    for StoppedRun { report, .. } in &reports {
        assert_eq!((report.stopped, report.killed, report.is_clean()), (1, 1, true));
        assert!(report.took >= Duration::from_millis(300));
    }
    let one_after_the_other: Duration = reports.iter().map(|stopped| stopped.report.took).sum();
    assert!(took < one_after_the_other, "{took:?} for what takes {one_after_the_other:?} in a row");
    for ((run, worker), home) in runs.iter().zip(&workers).zip(&homes) {
        assert_eq!(worker.try_wait().unwrap().status, ExitStatus::Signal(libc::SIGKILL));
        assert!(matches!(run.spawn(Command::new("true")), Err(SpawnError::Stopped)));
        assert!(home.is_empty());
        assert_eq!(run.stop().killed, 1, "the report is kept");
    }
    assert!(end_all(Duration::ZERO).is_empty());
}

#[test]
fn end_all_cuts_short_a_stop_with_a_longer_grace() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().cleanup_on_stop_timeout_ms(60_000));
    let worker = deaf_worker(&run);
    let events = run.events().unwrap();
    let began = Instant::now();
    let patient = std::thread::spawn({
        let run = run.clone();
        move || run.stop()
    });
    while !matches!(events.next_event(), Some(CustodyEvent::CleanupStart { .. })) {}
    let reports = end_all(Duration::ZERO);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].report.is_clean());
    assert!(worker.try_wait().is_some());
    assert_eq!(patient.join().unwrap().took, reports[0].report.took, "they are one stop");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(home.is_empty());
}

#[test]
fn a_stop_with_a_shorter_grace_cuts_short_an_earlier_one() {
    let home = Home::new();
    let run = home.open_with(&CustodyOptions::default().cleanup_on_stop_timeout_ms(60_000));
    let worker = deaf_worker(&run);
    let events = run.events().unwrap();
    let began = Instant::now();
    let patient = std::thread::spawn({
        let run = run.clone();
        move || run.stop()
    });
    while !matches!(events.next_event(), Some(CustodyEvent::CleanupStart { .. })) {}
    assert!(run.stop_within(Duration::ZERO).is_clean());
    assert!(worker.try_wait().is_some());
    assert!(patient.join().unwrap().is_clean());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn stop_all_gives_each_run_the_time_that_it_is_configured_with() {
    let homes = [Home::new(), Home::new(), Home::new()];
    let configs = [
        CustodyOptions::default().cleanup_on_stop_timeout_ms(200),
        CustodyOptions::default().cleanup_on_stop_timeout_ms(1500),
        CustodyOptions::default().without_cleanup_on_stop().cleanup_on_stop_timeout_ms(60_000),
    ];
    let runs = [0, 1, 2].map(|index| homes[index].open_with(&configs[index]));
    let _workers = runs.each_ref().map(deaf_worker);
    let reports = stop_all();
    let took = runs
        .each_ref()
        .map(|run| reports.iter().find(|stopped| stopped.run == run.id()).unwrap().report.took);
    assert!(reports.iter().all(|stopped| stopped.report.killed == 1), "{reports:?}");
    assert!(took[0] >= Duration::from_millis(200) && took[1] >= Duration::from_millis(1500), "{took:?}");
    assert!(took[0] < took[1] && took[2] < took[1], "each its own: {took:?}");
    assert!(homes.iter().all(Home::is_empty));
}

#[test]
fn end_all_may_be_called_by_many_threads_at_once() {
    let homes = [Home::new(), Home::new()];
    let runs = homes.each_ref().map(Home::open);
    for run in &runs {
        run.spawn(Command::new("sleep").arg("1000")).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for StoppedRun { report, .. } in end_all(Duration::from_secs(10)) {
                    assert!(report.is_clean());
                }
            });
        }
    });
    assert!(homes.iter().all(Home::is_empty));
}

#[test]
fn a_run_that_was_dropped_is_not_ended_again() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    drop(run);
    assert!(worker.try_wait().is_some());
    assert!(end_all(Duration::ZERO).is_empty());
}
