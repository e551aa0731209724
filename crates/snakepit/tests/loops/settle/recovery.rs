//! The table of message recovery, row by row, in both kinds of mailboxes.
//!
//! About `crates/loops/src/lease/leased_messages.rs` and `crates/loops/src/receive/message_loop.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use snakepit::loops::{RunOptions, Runnable};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Gate, Mailboxes, end, run};
use crate::support::soon;

#[tokio::test(flavor = "multi_thread")]
async fn row_1_in_flight_when_the_shutdown_comes_completes_and_is_acknowledged() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let scope = run(gate.main_loop("main", &mailboxes.requests), RunOptions::new()).await;
        mailboxes.ask(json!("in flight")).await;
        gate.begun().await;
        let ends = scope.runnable().shutdown(Duration::from_secs(20));
        assert_eq!(mailboxes.count().await.in_flight, 1, "{}: it is still ours", mailboxes.kind);
        gate.let_through(1);
        assert!(ends.await, "{}", mailboxes.kind);
        assert_eq!(mailboxes.reply().await.read::<String>().expect("text"), "in flight");
        assert_eq!(
            mailboxes.count().await,
            snakepit::mailbox::MessageCounts::default(),
            "{}",
            mailboxes.kind
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_2_received_but_not_started_is_given_back_at_once_in_one_batch() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let flaky = Flaky::new(&mailboxes.requests);
        let mailbox: Arc<dyn snakepit::mailbox::Mailbox> = Arc::new(Behind(Arc::clone(&flaky)));
        mailboxes.send_numbers(8).await;
        let scope = run(gate.main_loop("main", &mailbox).prefetch(7), RunOptions::new()).await;
        gate.begun().await;
        mailboxes.until_count(0, 8, 0).await;
        let ends = scope.runnable().shutdown(Duration::from_secs(20));
        // The message in flight is not waited for.
        mailboxes.until_count(7, 1, 0).await;
        assert_eq!(flaky.batches.load(Ordering::SeqCst), 1, "{}", mailboxes.kind);
        let redelivered = mailboxes.take_all().await;
        assert_eq!(redelivered.len(), 7, "{}", mailboxes.kind);
        gate.let_through(1);
        assert!(ends.await);
        mailboxes.until_count(0, 7, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_3_never_received_is_picked_up_by_another_loop() {
    for mailboxes in Mailboxes::both() {
        let (mut first, mut second) = (Gate::new(), Gate::new());
        let scope = run(first.main_loop("first", &mailboxes.requests), RunOptions::new()).await;
        mailboxes.send(json!("one")).await;
        assert_eq!(first.begun().await, "one");
        let ends = scope.runnable().shutdown(Duration::from_secs(20));
        mailboxes.send(json!("two")).await;
        let other = run(second.main_loop("second", &mailboxes.requests), RunOptions::new()).await;
        assert_eq!(second.begun().await, "two", "{}", mailboxes.kind);
        first.let_through(1);
        second.let_through(1);
        assert!(ends.await);
        end(other).await;
        assert_eq!(mailboxes.count().await, snakepit::mailbox::MessageCounts::default());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_4_longer_than_the_timeout_the_lease_runs_out_and_it_is_redelivered() {
    for mailboxes in Mailboxes::both() {
        let (mut first, mut second) = (Gate::new(), Gate::new());
        let options = RunOptions::new().visibility_timeout(Duration::from_millis(600));
        let scope = run(first.main_loop("first", &mailboxes.requests), options).await;
        mailboxes.send(json!("slow")).await;
        first.begun().await;
        assert!(!scope.runnable().shutdown(Duration::from_millis(50)).await, "{}", mailboxes.kind);
        assert!(scope.runnable().running());
        let other = run(second.main_loop("second", &mailboxes.requests), options).await;
        assert_eq!(second.begun().await, "slow", "{}", mailboxes.kind);
        // The late one is not accepted; the second one is.
        first.let_through(1);
        soon("the first ends", scope.runnable().control().until_stopped()).await;
        assert_eq!(mailboxes.count().await.in_flight, 1, "{}", mailboxes.kind);
        second.let_through(1);
        end(other).await;
        assert_eq!(mailboxes.count().await, snakepit::mailbox::MessageCounts::default());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_now_cancels_what_is_in_flight_and_gives_it_back() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        mailboxes.send_numbers(6).await;
        let scope =
            run(gate.main_loop("main", &mailboxes.requests).concurrency(3).prefetch(3), RunOptions::new())
                .await;
        for _ in 0..3 {
            gate.begun().await;
        }
        mailboxes.until_count(0, 6, 0).await;
        scope.runnable().stop_now();
        soon("it ends", scope.runnable().control().until_stopped()).await;
        assert_eq!(mailboxes.count().await.visible, 6, "{}", mailboxes.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_gives_back_what_it_held() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let main = Arc::new(gate.main_loop("main", &mailboxes.requests).prefetch(2));
        mailboxes.send_numbers(3).await;
        let runs = Arc::clone(&main);
        let task = tokio::spawn(async move { runs.run(RunOptions::new()).await });
        gate.begun().await;
        mailboxes.until_count(0, 3, 0).await;
        task.abort();
        mailboxes.until_count(3, 0, 0).await;
        assert!(!main.running(), "{}", mailboxes.kind);
    }
}
