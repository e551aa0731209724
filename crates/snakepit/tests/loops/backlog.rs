//! Many messages at once: how they are received, and that no more are than there is room for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::loops::{Failure, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{Count, Mailbox, TypedMessage};

use crate::flaky::{Behind, Flaky};
use crate::post::{Gate, Post, end, run};
use crate::support::{soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn of_a_backlog_as_much_is_leased_as_there_is_room_for_and_all_of_it_is_handled() {
    for post in Post::both() {
        let mut gate = Gate::new();
        post.send_numbers(200).await;
        let main = gate.main_loop("main", &post.requests).concurrency(25).prefetch(12);
        let scope = run(main, RunOptions::new()).await;
        for _ in 0..25 {
            gate.begun().await;
        }
        post.until_count(200 - 37, 37, 0).await;
        let control = scope.runnable().control();
        // They are leased before they are in hand.
        until("all are in hand", || (control.in_flight(), control.waiting()) == (25, 12)).await;
        gate.let_through(200);
        soon("all are handled", async {
            while control.handled() < 200 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        post.until_count(0, 0, 0).await;
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_received_by_several_receives_and_an_idle_loop_waits_in_one() {
    for post in Post::both() {
        let flaky = Flaky::new(&post.requests);
        let mailbox: Arc<dyn Mailbox> = Arc::new(Behind(Arc::clone(&flaky)));
        post.send_numbers(200).await;
        let handler = |_: TypedMessage<Value>| async { Ok::<(), Failure>(()) };
        let main = MainLoop::new("main", mailbox, handler).concurrency(50).prefetch(50);
        let scope = run(main, RunOptions::new()).await;
        post.until_count(0, 0, 0).await;
        soon("it waits in one receive", async {
            while flaky.receives.load(Ordering::SeqCst) != 1 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let most = flaky.most_receives.load(Ordering::SeqCst);
        // In memory each is done as soon as it is begun.
        let fewest = if post.kind == "memory" { 1 } else { 2 };
        assert!((fewest..=10).contains(&most), "{}: {most} receives at once", post.kind);
        assert!(post.count().await == Count::default());
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_a_loop_that_receives_ahead_handles_in_the_order_of_sends() {
    for post in Post::both() {
        let mut gate = Gate::new();
        post.send_numbers(30).await;
        gate.let_through(30);
        let scope = run(gate.main_loop("main", &post.requests).prefetch(20), RunOptions::new()).await;
        for number in 0..30 {
            assert_eq!(gate.begun().await, json!(number), "{}", post.kind);
        }
        end(scope).await;
    }
}
