//! A backlog: how much of it a loop leases at a time, and in which order the loop handles it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::loops::{HandlerFailure, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{Mailbox, MessageCounts, TypedMessage};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Gate, Mailboxes, end, run};
use crate::support::{soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_leases_as_much_of_a_backlog_as_it_has_room_for_and_handles_all_of_it() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        mailboxes.send_numbers(200).await;
        let main = gate.main_loop("main", &mailboxes.requests).concurrency(25).prefetch(12);
        let scope = run(main, RunOptions::new()).await;
        for _ in 0..25 {
            gate.begun().await;
        }
        mailboxes.until_count(200 - 37, 37, 0).await;
        let control = scope.runnable().control();
        // The messages are leased before they are in hand.
        until("all are in hand", || (control.in_flight(), control.waiting()) == (25, 12)).await;
        gate.let_through(200);
        soon("all are handled", async {
            while control.handled() < 200 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        mailboxes.until_count(0, 0, 0).await;
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_received_by_several_receives_and_an_idle_loop_waits_in_one() {
    for mailboxes in Mailboxes::both() {
        let flaky = Flaky::new(&mailboxes.requests);
        let mailbox: Arc<dyn Mailbox> = Arc::new(Behind(Arc::clone(&flaky)));
        mailboxes.send_numbers(200).await;
        let handler = |_: TypedMessage<Value>| async { Ok::<(), HandlerFailure>(()) };
        let main = MainLoop::new("main", mailbox, handler).concurrency(50).prefetch(50);
        let scope = run(main, RunOptions::new()).await;
        mailboxes.until_count(0, 0, 0).await;
        soon("it waits in one receive", async {
            while flaky.receives.load(Ordering::SeqCst) != 1 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let most = flaky.most_receives.load(Ordering::SeqCst);
        // In memory, each message is done as soon as it is begun.
        let fewest = if mailboxes.kind == "memory" { 1 } else { 2 };
        assert!((fewest..=10).contains(&most), "{}: {most} receives at once", mailboxes.kind);
        assert!(mailboxes.count().await == MessageCounts::default());
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_receives_ahead_and_handles_one_at_a_time_keeps_the_order_of_sends() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        mailboxes.send_numbers(30).await;
        gate.let_through(30);
        let scope = run(gate.main_loop("main", &mailboxes.requests).prefetch(20), RunOptions::new()).await;
        for number in 0..30 {
            assert_eq!(gate.begun().await, json!(number), "{}", mailboxes.kind);
        }
        end(scope).await;
    }
}
