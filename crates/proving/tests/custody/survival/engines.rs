//! Engines without a script: manual cleanup, stops that are not awaited, and two engines at a time.

use super::EmbedderProcess;

fn says(how: &str, runtime: &str, expected: &[&str]) {
    let (how, runtime) = (format!("how={how}"), format!("runtime={runtime}"));
    let ended = EmbedderProcess::start(&["engines", &how, &runtime]).end();
    assert_eq!(ended.said(), expected, "{how}, {runtime}: {:#?}", ended.lines);
    assert_eq!(ended.status, Some(0), "{how}, {runtime}");
}

#[test]
fn a_manual_cleanup_needs_no_runtime_and_its_engine_then_rejects_calls() {
    let expected = [
        "ended 1 clean true",
        "worker alive false",
        "again 0",
        "call failed",
        "refused",
        "stopped soon true",
    ];
    says("cleanup", "multi", &expected);
    says("cleanup", "current", &expected);
}

#[test]
fn a_manual_cleanup_cuts_short_a_stop_that_waits_for_a_call() {
    for _ in 0..snakepit_proving::rounds(3, 1) {
        says("cleanup-beside-a-stop", "multi", &["ended 1", "call failed"]);
    }
    says("cleanup-beside-a-stop", "current", &["ended 1", "call failed"]);
}

#[test]
fn after_a_manual_cleanup_another_process_wide_engine_can_start() {
    says("cleanup-then-script", "multi", &["ended 1", "another script ran"]);
    says("cleanup-then-script", "current", &["ended 1", "another script ran"]);
}

#[test]
fn a_stop_whose_future_is_dropped_continues() {
    let expected = ["given up", "another script ran", "call answered"];
    says("stop-given-up", "multi", &expected);
    says("stop-given-up", "current", &expected);
}

#[test]
fn dropping_the_last_handle_without_a_running_runtime_ends_the_workers() {
    says("drop-undriven", "multi", &["the worker is gone"]);
    says("drop-undriven", "current", &["the worker is gone"]);
}

#[test]
fn of_two_engines_one_stops_and_the_other_serves_until_all_are_cleaned_up() {
    says("two", "multi", &["refused", "served", "ended 1", "refused"]);
    says("two", "current", &["refused", "served", "ended 1", "refused"]);
}

#[test]
fn until_shutdown_returns_when_another_task_stops_the_engine() {
    says("stopped-by-another", "multi", &["until_shutdown gave Some(0)"]);
}
