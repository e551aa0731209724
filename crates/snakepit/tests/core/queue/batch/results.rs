//! Results of a batch from workers that send the results in parts, malformed, or not at all.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{Pit, fault_of, raw, soon};

type Outcome = Result<u32, CallError>;

/// Returns what a worker makes of so many inputs in one frame.
async fn outcomes(mode: &str, inputs: u32) -> Vec<Outcome> {
    let grace = Duration::from_millis(50);
    let grace = CancelGrace::each(grace);
    let pit = Pit::start(raw(mode).cancel_grace(grace)).await;
    let map = pit.map::<u32, _>("any", 0..inputs).chunk(inputs as usize).timeout(Duration::from_secs(3));
    let outcomes: Vec<_> = soon(mode, map.in_order().expect("a map").collect::<Vec<_>>()).await;
    assert_eq!(outcomes.len(), inputs as usize);
    pit.end_now().await;
    outcomes
}

/// Returns the value of each outcome that has one.
fn values(outcomes: &[Outcome]) -> Vec<Option<u32>> {
    outcomes.iter().map(|outcome| outcome.as_ref().ok().copied()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_results_than_calls_are_a_fault() {
    for mode in ["too_many_results", "too_many_results_in_parts", "endless_results"] {
        let outcomes = outcomes(mode, 3).await;
        let fault = fault_of(outcomes[2].as_ref().expect_err("a fault"));
        assert!(fault.contains("4 results for the 3 inputs of call"), "{mode}: {fault}");
        // What came before, in a frame of its own, is kept.
        let kept = if mode == "too_many_results" { [None, None, None] } else { [Some(1), Some(2), None] };
        assert_eq!(values(&outcomes), kept, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_without_an_end_and_without_an_entry_are_a_fault() {
    let outcomes = outcomes("more_of_nothing", 3).await;
    assert_eq!(values(&outcomes), [Some(1), None, None]);
    let fault = fault_of(outcomes[1].as_ref().expect_err("a fault"));
    assert!(fault.contains("empty Results"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_wrong_kind_are_faults() {
    let pit = Pit::start(raw("results_of_one")).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a fault");
    assert!(fault_of(&error).contains("which is one call"), "{error}");
    pit.end().await;
    for (mode, words) in [
        ("result_of_many", "a batch, with a"),
        ("end_of_many", "a batch, with a"),
        ("results_that_are_no_list", "should be a list"),
    ] {
        for outcome in outcomes(mode, 3).await {
            let fault = fault_of(&outcome.expect_err("a fault"));
            assert!(fault.contains(words), "{mode}: {fault}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_results_fail_only_those_that_are_missing() {
    let outcomes = outcomes("few_results_in_parts", 4).await;
    assert_eq!(values(&outcomes), [Some(1), Some(2), None, None]);
    for outcome in &outcomes[2..] {
        assert!(outcome.as_ref().is_err_and(|error| error.to_string().contains("no outcome")), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_cannot_be_read_fails_only_what_it_holds() {
    let outcomes = outcomes("unreadable_part", 3).await;
    assert_eq!(values(&outcomes), [None, Some(2), Some(3)]);
    assert!(matches!(outcomes[0], Err(CallError::Result { .. })), "{:?}", outcomes[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_some_results_is_the_answer_of_the_rest() {
    let outcomes = outcomes("error_after_some", 3).await;
    assert_eq!(values(&outcomes), [Some(1), None, None]);
    for outcome in &outcomes[1..] {
        assert!(outcome.as_ref().is_err_and(|error| error.to_string().contains("no more")), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_after_some_results_ends_with_the_callers_time() {
    let outcomes = outcomes("silence_after_some", 4).await;
    assert_eq!(values(&outcomes), [Some(1), Some(2), None, None]);
    for outcome in &outcomes[2..] {
        assert!(matches!(outcome, Err(CallError::Timeout { .. })), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_after_some_results_fails_what_was_started_and_the_rest_goes_on() {
    let outcomes = outcomes("dies_after_some", 6).await;
    // Each worker answers one call, starts another, and dies of it. The next worker gets those that were not started.
    assert_eq!(values(&outcomes), [Some(1), None, Some(1), None, Some(1), None]);
    for outcome in [&outcomes[1], &outcomes[3], &outcomes[5]] {
        assert!(outcome.as_ref().is_err_and(|error| error.autopsy().is_some()), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_two_calls_of_a_batch_fails_neither() {
    let outcomes = outcomes("dies_after_all_that_it_started", 3).await;
    assert_eq!(values(&outcomes), [Some(1); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_call_is_never_run_again() {
    let outcomes = outcomes("dies_after_some_unsaid", 4).await;
    assert_eq!(values(&outcomes), [Some(1), None, None, None]);
    for outcome in &outcomes[1..] {
        assert!(outcome.as_ref().is_err_and(|error| error.autopsy().is_some()), "{outcome:?}");
    }
}
