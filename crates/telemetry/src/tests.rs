//! Tests of the catalog and of subscriptions.

mod errors;

use std::time::Duration;

use super::*;
use snakepit_custody::{CustodyEvent, WorkerId};

/// Returns an event that identifies its test, because the tests share a process.
fn sign(number: u64) -> Event {
    Event::CallRetried { pool: "p".into(), command: "c".into(), attempt: number as u32 }
}

#[test]
fn names_are_unique_and_well_formed() {
    let mut names: Vec<&str> = CATALOG.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for entry in CATALOG {
        let well_formed = |c: char| c.is_ascii_lowercase() || c == '.' || c == '_';
        assert!(entry.name.starts_with("snakepit.") && entry.name.chars().all(well_formed), "{}", entry.name);
        assert!(entry.when.ends_with('.'), "{}: {}", entry.name, entry.when);
    }
}

#[test]
fn no_field_has_the_name_of_a_key_that_every_log_line_has() {
    // The keys that tracing-subscriber writes beside the fields of an event, and those that our own events have.
    let taken =
        ["message", "event", "level", "target", "timestamp", "span", "spans", "filename", "line_number"];
    for entry in CATALOG {
        let mut names: Vec<&str> = entry.fields.iter().map(|field| field.name).collect();
        names.extend(taken);
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}: {names:?}", entry.name);
    }
}

#[test]
fn an_event_knows_its_name_its_level_and_its_fields() {
    let success = |killed, took| Event::CleanupSuccess {
        run_id: "r".into(),
        scope: "run",
        worker: None,
        workers: 3,
        killed,
        took,
    };
    let event = success(1, Duration::from_millis(1500));
    assert_eq!((event.name(), event.level()), ("snakepit.cleanup.success", Level::Warn));
    assert_eq!(
        event.fields(),
        [
            ("run_id", FieldValue::Text("r")),
            ("scope", FieldValue::Text("run")),
            ("worker", FieldValue::Absent),
            ("workers", FieldValue::Integer(3)),
            ("killed", FieldValue::Integer(1)),
            ("took", FieldValue::Duration(Duration::from_millis(1500))),
        ]
    );
    assert_eq!(success(0, Duration::ZERO).level(), Level::Debug);
}

#[test]
fn a_cleanup_event_says_whether_it_concerns_the_run_or_one_worker() {
    let worker = WorkerId::new("w-1").expect("a name");
    for (worker, scope) in [(None, "run"), (Some(worker), "worker")] {
        let told = custody::event_of("r".into(), &CustodyEvent::CleanupStart { worker, workers: 1 });
        let fields = told.fields();
        assert!(fields.contains(&("scope", FieldValue::Text(scope))), "{fields:?}");
        let name = if scope == "worker" { FieldValue::Text("w-1") } else { FieldValue::Absent };
        assert!(fields.contains(&("worker", name)), "{fields:?}");
    }
}

#[test]
fn kills_timeouts_and_damage_of_custody_are_warnings_and_the_rest_is_not() {
    let level = |event: &CustodyEvent| custody::event_of("r".into(), event).level();
    let success =
        |killed| CustodyEvent::CleanupSuccess { worker: None, workers: 1, killed, took: Duration::ZERO };
    let timeout =
        CustodyEvent::CleanupTimeout { worker: None, killed: 0, survivors: Vec::new(), took: Duration::ZERO };
    let damage = CustodyEvent::FileDamaged { path: "keeper.bin".into(), trouble: None };
    for warning in [success(1), timeout, damage, CustodyEvent::LedgerTrouble { errno: 28 }] {
        assert_eq!(level(&warning), Level::Warn, "{warning:?}");
    }
    for quiet in [success(0), CustodyEvent::CleanupStart { worker: None, workers: 1 }] {
        assert_eq!(level(&quiet), Level::Debug, "{quiet:?}");
    }
}

#[test]
fn an_event_is_one_line_of_json() {
    let event = Event::ScriptShutdownStop {
        run_id: None,
        path: "signal",
        exit_mode: "none",
        stop_mode: "always",
        owned: true,
        status: 0,
        took: Duration::from_millis(250),
        drained: true,
    };
    assert_eq!(
        serde_json::to_string(&event).expect("a line"),
        r#"{"event":"snakepit.script.shutdown.stop","level":"info","run_id":null,"path":"signal","exit_mode":"none","stop_mode":"always","owned":true,"status":0,"took":0.25,"drained":true}"#
    );
}

#[test]
fn a_slow_subscriber_loses_the_oldest_events_and_knows_how_many() {
    let mut slow = subscribe();
    for number in 0..5000 {
        emit(sign(number));
    }
    assert_eq!(slow.lost(), 5000 - 4096);
    let first = slow.next_within(Duration::ZERO).expect("an event");
    assert_eq!(first.fields()[2].1, FieldValue::Integer(5000 - 4096));
    assert_eq!(slow.drain().len(), 4095);
    assert!(slow.next_within(Duration::from_millis(1)).is_none());
}

#[test]
fn a_subscriber_to_warnings_gets_nothing_else() {
    assert!(!subscription::wants(Level::Warn), "nobody listens yet");
    let mut events = subscribe_to(Level::Warn);
    assert!(subscription::wants(Level::Warn) && !subscription::wants(Level::Info));
    emit(sign(1));
    emit(Event::KeeperLost { run: "r".into(), workers: 1 });
    let heard = events.drain();
    assert_eq!(heard.iter().map(Event::name).collect::<Vec<_>>(), ["snakepit.keeper.lost"]);
    drop(events);
    assert!(!subscription::wants(Level::Warn), "nobody listens anymore");
}

#[test]
fn a_thread_without_a_runtime_waits_for_the_next_event() {
    let mut events = subscribe();
    let waiting = std::thread::spawn(move || events.next_within(Duration::from_secs(20)));
    emit(sign(7));
    let event = waiting.join().expect("no panic").expect("an event");
    assert_eq!(event.fields()[2].1, FieldValue::Integer(7));
}

#[tokio::test]
async fn a_task_waits_for_the_next_event() {
    let mut events = subscribe();
    let waiting = tokio::spawn(async move { events.next().await });
    tokio::task::yield_now().await;
    emit(sign(8));
    let event = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("in time");
    assert_eq!(event.expect("no panic").expect("an event").fields()[2].1, FieldValue::Integer(8));
}

#[tokio::test]
async fn a_subscription_to_an_origin_gets_its_events_alone_and_ends_with_it() {
    let (origin, other) = (EventOrigin::default(), EventOrigin::default());
    let (mut events, mut all) = (origin.subscribe(), subscribe());
    other.emit_with(|| sign(1));
    emit(sign(2));
    origin.emit_with(|| sign(3));
    drop(origin);
    let number = |event: Event| event.fields()[2].1 == FieldValue::Integer(3);
    assert!(events.next().await.is_some_and(number));
    assert!(events.next().await.is_none(), "the origin is gone");
    assert_eq!(all.drain().len(), 3);
}
