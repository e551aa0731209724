//! Frames that are short on the wire and costly to decode: the cost for the host is bounded.

use std::time::{Duration, Instant};

use snakepit::telemetry::Event;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{Pit, chain, fault_of, heard, raw, soon};

/// The frames are about 20 MiB long. They are read once, and some are copied once.
const MEMORY: u64 = 160 << 10;
/// On a quiet machine, none of this takes a second.
const TIME: Duration = Duration::from_secs(30);

/// Returns the highest memory use of this process so far, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a high-water mark");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Calls a worker, and proves that its frame costs neither much memory nor much time.
async fn outcome(mode: &str, pool: PoolOptions) -> Result<String, CallError> {
    let pit = Pit::start(pool).await;
    let before = resident();
    let began = Instant::now();
    let outcome = soon(mode, pit.call::<Value>("any", args! {}).timeout(Duration::from_mins(2))).await;
    assert!(began.elapsed() < TIME, "{mode}: {:?}", began.elapsed());
    let cost = resident() - before;
    assert!(cost < MEMORY, "{mode}: {cost} KiB");
    pit.end_now().await;
    outcome.map(|value| value.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn decoding_a_log_is_cheap_whatever_it_contains() {
    for mode in ["log_of_nils", "log_of_integers", "log_of_a_long_text"] {
        assert_eq!(outcome(mode, raw(mode)).await.expect("an answer"), "\"ok\"", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_log_says_so() {
    let pit = Pit::start(raw("log_of_nils")).await;
    let pool = pit.pools()[0].clone();
    let worker = pool.workers()[0].id.clone();
    let _: Value = soon("the call", pit.call("any", args! {})).await.expect("an answer");
    let lines = pool.output(&worker).expect("output").lines;
    let told = &lines.last().expect("a line").text;
    assert_eq!(told, "info: nils (fields of 20971525 bytes are left out; 65536 is the limit)");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decoding_progress_is_cheap() {
    let mode = "progress_of_a_long_text";
    assert_eq!(outcome(mode, raw(mode)).await.expect("an answer"), "\"ok\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_frame_has_a_limit_of_its_own() {
    let home = tempfile::tempdir().expect("a directory");
    let custody = snakepit::custody::CustodyOptions::default().state_dir(home.path());
    let before = resident();
    let start = snakepit::Snakepit::builder().pool(raw("ready_of_nils")).custody(custody).start();
    let error = soon("the start", start).await.expect_err("no worker");
    let told = chain(&error);
    assert!(told.contains("a frame of kind Ready that is 20971"), "{told}");
    assert!(told.contains("1048576 is the most for that kind"), "{told}");
    assert!(resident() - before < MEMORY, "{} KiB", resident() - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_has_a_limit_of_its_own() {
    let mode = "fault_of_a_long_text";
    let error = outcome(mode, raw(mode)).await.expect_err("a fault");
    assert!(fault_of(&error).contains("65536 is the most for that kind"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_limited_by_its_size_in_memory() {
    let mode = "result_of_nils";
    let error = outcome(mode, raw(mode).max_frame(32 << 20)).await.expect_err("too much");
    assert!(chain(&error).contains("four times max_frame"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_references_to_one_body_are_rejected() {
    for mode in ["result_of_a_body", "result_of_a_short_body"] {
        let error = outcome(mode, raw(mode)).await.expect_err("named too often");
        assert!(chain(&error).contains("more than twice the bytes"), "{}", chain(&error));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decoding_an_error_is_cheap_whatever_it_contains() {
    let error = outcome("error_of_notes", raw("error_of_notes")).await.expect_err("an error");
    assert!(error.to_string().contains("too much memory"), "{error}");
}

/// Each call has an argument of 64 KiB, which the worker does not read. Once the socket is full, calls wait to be sent.
/// Calls that were not sent go to the next worker, so the fault appears in the end of the worker, not in the error of a
/// call.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_answers_without_reading_is_ended() {
    let pit = Pit::start(raw("answers_unread")).await;
    let mut events = pit.pools()[0].events();
    let before = resident();
    let big = snakepit::value::Blob::from(vec![7u8; 64 << 10]);
    let calls = async {
        loop {
            let _: Value = soon("a call", pit.call("any", args! { big: big })).await.expect("an answer");
            assert!(resident() - before < MEMORY, "{} KiB", resident() - before);
        }
    };
    let death = heard(&mut events, |event| match event {
        Event::WorkerDied { autopsy, .. } => Some(autopsy),
        _ => None,
    });
    let autopsy = tokio::select! { autopsy = death => autopsy, never = calls => never };
    assert!(autopsy.to_string().contains("before it was sent"), "{autopsy}");
    pit.end_now().await;
}
