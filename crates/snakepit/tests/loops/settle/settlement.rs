//! Backends that fail for a minute, have no room for replies, or never answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use snakepit::loops::{HandlerFailure, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{Mailbox, MessageCounts, TypedMessage};
use tokio::time::{Instant, sleep};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Gate, Mailboxes, end, run};
use crate::support::{soon, until};

const A_MINUTE: Duration = Duration::from_mins(1);
/// The recovery of a backend is noticed within this time.
const NOTICED: Duration = Duration::from_secs(11);

fn behind(mailboxes: &Mailboxes) -> (Arc<Flaky>, Arc<dyn Mailbox>) {
    let flaky = Flaky::new(&mailboxes.requests);
    (Arc::clone(&flaky), Arc::new(Behind(flaky)))
}

/// Returns a loop that counts its messages and takes this long for each.
fn counting(mailbox: &Arc<dyn Mailbox>, takes: Duration) -> (MainLoop, Arc<AtomicUsize>) {
    let handled = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&handled);
    let main = MainLoop::new("main", Arc::clone(mailbox), move |request: TypedMessage<i64>| {
        counts.fetch_add(1, Ordering::SeqCst);
        async move {
            sleep(takes).await;
            Ok::<_, HandlerFailure>(request.value)
        }
    });
    (main, handled)
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_for_a_minute_costs_that_minute_and_nothing_else() {
    let mailboxes = Mailboxes::memory();
    let (flaky, mailbox) = behind(&mailboxes);
    let (main, handled) = counting(&mailbox, Duration::from_secs(5));
    let scope = run(main, RunOptions::new()).await;
    let control = scope.runnable().control().clone();
    // One message is being handled, and another one arrives meanwhile.
    mailboxes.ask(json!(1)).await;
    until("it is handled", || handled.load(Ordering::SeqCst) == 1).await;
    flaky.set_broken(true);
    mailboxes.ask(json!(2)).await;
    sleep(A_MINUTE).await;
    assert!(scope.runnable().running());
    assert!(control.trouble().is_some_and(|trouble| trouble.contains("on fire")), "it is shown");
    assert_eq!(control.in_flight(), 1, "its ack is tried again and again");
    let tries = flaky.failures.load(Ordering::SeqCst);
    assert!((6..60).contains(&tries), "{tries} tries in a minute");
    flaky.set_broken(false);
    let healed = Instant::now();
    let mut troubles = control.troubles();
    soon("it recovers", troubles.wait_for(Option::is_none)).await.expect("a loop");
    assert!(healed.elapsed() < NOTICED, "{:?}", healed.elapsed());
    for number in [1, 2] {
        assert_eq!(mailboxes.reply().await.read::<i64>().expect("a number"), number);
    }
    assert_eq!(handled.load(Ordering::SeqCst), 2, "each once: the lease was long enough");
    end(scope).await;
    assert_eq!(mailboxes.count().await, MessageCounts::default());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_the_backend_fails_costs_a_delivery_and_no_message() {
    let mailboxes = Mailboxes::memory();
    let (flaky, mailbox) = behind(&mailboxes);
    let (main, handled) = counting(&mailbox, Duration::from_secs(5));
    let options = RunOptions::new().visibility_timeout(Duration::from_secs(30));
    let scope = run(main, options).await;
    mailboxes.ask(json!(1)).await;
    until("it is handled", || handled.load(Ordering::SeqCst) == 1).await;
    flaky.set_broken(true);
    sleep(A_MINUTE).await;
    flaky.set_broken(false);
    assert_eq!(mailboxes.reply().await.read::<i64>().expect("a number"), 1);
    end(scope).await;
    assert_eq!(handled.load(Ordering::SeqCst), 2);
    assert_eq!(mailboxes.count().await, MessageCounts::default());
    assert_eq!(mailboxes.replies.count().await.expect("counted").visible, 0, "one reply, and no second one");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_the_backend_fails_ends_in_time_and_leaves_the_rest_to_the_lease() {
    let mailboxes = Mailboxes::memory();
    let (flaky, mailbox) = behind(&mailboxes);
    let (main, handled) = counting(&mailbox, Duration::from_secs(1));
    let scope = run(main.prefetch(2), RunOptions::new()).await;
    mailboxes.send_numbers(3).await;
    until("it is handled", || handled.load(Ordering::SeqCst) == 1).await;
    flaky.set_broken(true);
    let began = Instant::now();
    let ends = scope.runnable().shutdown(Duration::from_secs(30));
    assert!(!ends.await, "nobody knows whether it was acknowledged");
    assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
    soon("it ends soon after", scope.runnable().control().until_stopped()).await;
    flaky.set_broken(false);
    let count = mailboxes.count().await;
    assert_eq!(count.visible + count.in_flight, 3, "{count:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_finds_no_room_waits_for_it_and_the_handler_is_not_asked_again() {
    let mailboxes = Mailboxes::memory();
    let (flaky, mailbox) = behind(&mailboxes);
    let (main, handled) = counting(&mailbox, Duration::ZERO);
    // Far shorter than the time without room: its lease is extended meanwhile.
    let options = RunOptions::new().visibility_timeout(Duration::from_secs(30));
    let scope = run(main.concurrency(2), options).await;
    flaky.full.store(true, Ordering::SeqCst);
    mailboxes.ask(json!(1)).await;
    sleep(5 * A_MINUTE).await;
    assert_eq!(mailboxes.count().await.in_flight, 1, "it is still ours");
    // Messages that need no reply are still handled.
    mailboxes.send(json!(2)).await;
    until("the other one is handled", || handled.load(Ordering::SeqCst) == 2).await;
    flaky.full.store(false, Ordering::SeqCst);
    assert_eq!(mailboxes.reply().await.read::<i64>().expect("a number"), 1);
    end(scope).await;
    assert_eq!(handled.load(Ordering::SeqCst), 2);
    assert_eq!(mailboxes.count().await, MessageCounts::default());
}

/// Returns a loop with one message in flight and two that wait. The return of the waiting messages is never answered.
async fn with_a_lost_return(
    mailboxes: &Mailboxes,
) -> (Gate, Arc<Flaky>, Arc<MainLoop>, tokio::task::JoinHandle<()>) {
    let (flaky, mailbox) = behind(mailboxes);
    flaky.lost_batches.store(1, Ordering::SeqCst);
    let mut gate = Gate::new();
    mailboxes.send_numbers(3).await;
    let main = Arc::new(gate.main_loop("main", &mailbox).prefetch(2));
    let runs = Arc::clone(&main);
    let task = tokio::spawn(async move { runs.run(RunOptions::new()).await.expect("no error") });
    gate.begun().await;
    mailboxes.until_count(0, 3, 0).await;
    drop(main.shutdown(Duration::from_mins(1)));
    until("it gives back", || flaky.batches.load(Ordering::SeqCst) == 1).await;
    (gate, flaky, main, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_being_returned_when_a_loop_is_stopped_now_is_given_back() {
    for mailboxes in Mailboxes::both() {
        let (_gate, _flaky, main, task) = with_a_lost_return(&mailboxes).await;
        main.stop_now();
        soon("it ends", task).await.expect("no panic");
        assert_eq!(mailboxes.count().await.visible, 3, "{}", mailboxes.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_being_returned_when_a_run_is_dropped_is_given_back() {
    for mailboxes in Mailboxes::both() {
        let (_gate, _flaky, main, task) = with_a_lost_return(&mailboxes).await;
        task.abort();
        mailboxes.until_count(3, 0, 0).await;
        assert!(!main.running(), "{}", mailboxes.kind);
    }
}
