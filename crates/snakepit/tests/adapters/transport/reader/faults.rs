//! A worker that violates the protocol is replaced, with an error that names the violation.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use snakepit::pool::OutputStream;
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, fault_of, raw, runs, soon, until};

/// Calls a worker that violates the protocol in its answer. Returns the fault.
async fn fault(mode: &str) -> String {
    let pit = Pit::start(raw(mode)).await;
    let first = pit.pools()[0].workers()[0].pid;
    let error = soon(mode, pit.call::<Value>("any", args! {})).await.expect_err("a fault");
    let fault = fault_of(&error);
    let pool = pit.pools()[0].clone();
    until("another worker serves", || pool.workers().iter().any(|worker| worker.pid != first)).await;
    pit.end().await;
    fault
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_a_fault() {
    assert!(fault("garbage").await.contains("version 47"));
    assert!(fault("zeros").await.contains("version 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_four_gigabytes_is_refused_before_memory_is_taken() {
    let before = resident();
    assert!(fault("oversized").await.contains("4294967295 bytes"));
    assert!(resident() < before + 64 * 1024, "{before} KiB before, {} KiB after", resident());
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a high-water mark");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_header_value_is_refused_by_name() {
    assert!(fault("another_version").await.contains("version 9"));
    assert!(fault("unknown_kind").await.contains("unknown kind 99"));
    assert!(fault("unknown_flags").await.contains("0x0080"));
    assert!(fault("host_frame").await.contains("only the host may send"));
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_belong_to_no_call_are_faults() {
    assert!(fault("error_of_nobody").await.contains("belongs to no call"));
    assert!(fault("unreadable_tool_call").await.contains("HostCall"));
    assert!(fault("ready_twice_later").await.contains("twice"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrequested_stream_fails_only_its_call() {
    let pit = Pit::start(raw("uninvited_items")).await;
    let before = support::pids(&pit.pools()[0]);
    for _ in 0..5 {
        let error = soon("the call", pit.call::<Value>("any", ())).await.expect_err("a stream");
        assert_eq!(error.remote().map(|remote| remote.kind.as_str()), Some("streaming"), "{error}");
    }
    assert_eq!(support::pids(&pit.pools()[0]), before, "the worker lives");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_cannot_be_read_is_an_error_that_says_so() {
    for mode in
        ["empty_frame", "unreadable_value", "two_values", "deep_value", "long_list_claimed", "body_outside"]
    {
        let pit = Pit::start(raw(mode)).await;
        let error = soon(mode, pit.call::<Value>("any", args! {})).await.expect_err("not a value");
        let told = match &error {
            CallError::Result { .. } => support::chain(&error),
            error => fault_of(error),
        };
        assert!(told.len() > 20, "{mode}: {told}");
        pit.end_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_cannot_be_read_is_still_an_error() {
    let pit = Pit::start(raw("unreadable_error")).await;
    let error = pit.call::<Value>("any", args! {}).await.expect_err("an error");
    assert_eq!(error.remote().map(|error| error.kind.as_str()), Some("bad_payload"), "{error}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_beyond_the_credit_are_a_fault() {
    let pit = Pit::start(raw("items_beyond_credit")).await;
    let stream = pit.stream::<u32>("any", args! {}).credit(4).open().expect("a stream");
    let outcomes: Vec<_> = soon("the stream", stream.collect()).await;
    let error = outcomes.last().and_then(|last| last.as_ref().err()).expect("an error at the end");
    assert!(fault_of(error).contains("credit"), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_share_a_frame_come_one_by_one() {
    let pit = Pit::start(raw("shared_items")).await;
    let stream = pit.stream::<u32>("any", args! {}).credit(4).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect()).await;
    assert_eq!(items.into_iter().collect::<Result<Vec<_>, _>>().expect("items"), [1, 2, 3, 4]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_share_a_frame_have_credit_each() {
    let pit = Pit::start(raw("shared_items_beyond_credit")).await;
    let stream = pit.stream::<u32>("any", args! {}).credit(4).open().expect("a stream");
    let outcomes: Vec<_> = soon("the stream", stream.collect()).await;
    let error = outcomes.last().and_then(|last| last.as_ref().err()).expect("an error at the end");
    assert!(fault_of(error).contains("credit"), "{error}");
    pit.end().await;
    assert!(fault("no_shared_item").await.contains("a list of items"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_cut_short_in_a_shared_frame_ends_its_stream() {
    let pit = Pit::start(raw("shared_items_cut_short")).await;
    let stream = pit.stream::<u32>("any", args! {}).open().expect("a stream");
    let outcomes: Vec<_> = soon("the stream", stream.collect()).await;
    assert!(matches!(&outcomes[..], [Ok(1), Err(CallError::Result { .. })]), "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_within_a_frame_fails_the_call_with_its_exit_status() {
    let pit = Pit::start(raw("half_then_ends")).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a death");
    let exit = error.autopsy().and_then(|autopsy| autopsy.exit).map(|exit| exit.status);
    assert_eq!(exit, Some(snakepit::custody::ExitStatus::Code(3)), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stalls_within_a_frame_fails_the_call_at_its_deadline() {
    let pit = Pit::start(raw("half_then_waits").cancel_grace(SHORT)).await;
    let call = pit.call::<Value>("any", args! {}).timeout(Duration::from_millis(200));
    let error = soon("the call", call).await.expect_err("no answer");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    pit.end_now().await;
}

const SHORT: snakepit::pool::CancelGrace = snakepit::pool::CancelGrace::each(Duration::from_millis(50));

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_unknown_calls_and_second_answers_are_dropped() {
    for mode in ["unknown_call", "twice"] {
        let pit = Pit::start(raw(mode)).await;
        for _ in 0..20 {
            let answer: String = soon(mode, pit.call("any", args! {})).await.expect("an answer");
            assert_eq!(answer, "ok");
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_may_come_in_any_order() {
    let pit = Pit::start(raw("reversed_order").concurrency(4)).await;
    for _ in 0..20 {
        let calls = (0..4).map(|_| pit.call::<String>("any", args! {}).into_future());
        let answers = soon("the calls", futures_util::future::join_all(calls)).await;
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
        assert_eq!(answers, ["0", "1", "2", "3"]);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_closes_its_socket_and_lives_is_ended() {
    let pit = Pit::start(raw("closes_and_lives")).await;
    let pid = pit.pools()[0].workers()[0].pid.expect("a process");
    let began = Instant::now();
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a fault");
    println!("closed socket → error: {:?}", began.elapsed());
    assert!(fault_of(&error).contains("closed its socket"), "{error}");
    until("it is gone", || !runs(u32::try_from(pid.as_raw()).expect("a pid"))).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sends_bye_unasked_is_replaced() {
    let pit = Pit::start(raw("says_bye_early").queue_timeout(Duration::from_secs(2))).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("no worker");
    println!("{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_reads_nothing_delays_only_its_own_call() {
    let pit = Pit::start(raw("deaf").cancel_grace(SHORT)).await;
    // More than the socket takes.
    let big = snakepit::value::Blob::from(vec![7u8; 32 << 20]);
    let call = pit.call::<Value>("any", args! { big: big }).timeout(Duration::from_millis(300));
    let error = soon("the call", call).await.expect_err("no answer");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let pool = pit.pools()[0].clone();
    soon("a new worker", pool.await_ready(support::SOON)).await.expect("ready");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_kills_every_worker_is_given_up() {
    let pit = Pit::start(raw("poison").workers(2)).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a death");
    assert!(error.autopsy().is_some(), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sends_too_few_results_fails_only_those_that_are_missing() {
    let pit = Pit::start(raw("few_results")).await;
    let map = pit.map::<u32, _>("any", 0..3).chunk(3).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert_eq!(outcomes[0].as_ref().ok(), Some(&1));
    assert!(outcomes[1].as_ref().is_err_and(|error| error.to_string().contains("no outcome")));
    assert_eq!(outcomes.len(), 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_started_dies_with_it() {
    let pit = Pit::start(raw("family")).await;
    let pool = pit.pools()[0].clone();
    let worker = pool.workers()[0].id.clone();
    let first = tokio::spawn(pit.call::<Value>("any", args! {}).into_future());
    let told = || pool.output(&worker).map(|output| output.lines).unwrap_or_default();
    until("it has children", || told().iter().any(|line| line.stream == OutputStream::Log)).await;
    let line = told().into_iter().find(|line| line.stream == OutputStream::Log).expect("a line").text;
    let pids: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(pids.len(), 3, "{line}");
    assert!(pids.iter().all(|pid| runs(*pid)));
    first.abort();
    until("the first call is cancelled", || pool.workers().is_empty() || first.is_finished()).await;
    pit.end_now().await;
    assert!(!pids.iter().any(|pid| runs(*pid)), "{pids:?}");
}
