//! Groups: crashes, priorities, drains that are reversed, and stuck loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use snakepit::loops::{
    CrashPolicy, HandlerFailure, IfStuck, LoopGroup, LoopScope, MainLoop, RunOptions, Runnable, Watchdog,
};
use snakepit::mailbox::{Mailbox, MemoryMailbox, TypedMessage};
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::mailboxes::{Gate, Mailboxes};
use crate::peer_faults::Bare;
use crate::support::{soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_crashes_is_run_again_until_it_does_not() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let member = Bare::new("third time lucky", |control| {
        assert!(RUNS.fetch_add(1, Ordering::SeqCst) >= 2, "not yet");
        let mut orders = control.orders();
        Box::pin(async move {
            let _ = orders.wait_for(|orders| !orders.receives()).await;
            Ok(())
        })
    });
    let group = Arc::new(LoopGroup::new("group").with(member.clone()).crash_policy(CrashPolicy::restart()));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    until("it has come so far", || RUNS.load(Ordering::SeqCst) == 3 && member.running()).await;
    assert!(scope.end(Duration::from_secs(20)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_that_is_ignored_leaves_the_others_alone() {
    let mailboxes = Mailboxes::memory();
    let mut gate = Gate::new();
    let other = Arc::new(gate.main_loop("other", &mailboxes.requests));
    let group = LoopGroup::new("group").with(Bare::crashing("crashing")).with(other);
    let group = Arc::new(group.crash_policy(CrashPolicy::Ignore));
    let mut events = subscribe_to(Level::Warn);
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    // A crash that comes after the end was ordered would count as one of the end.
    soon("the crash", async { while !matches!(events.next().await, Some(Event::LoopCrashed { .. })) {} })
        .await;
    mailboxes.send(json!(1)).await;
    gate.begun().await;
    gate.let_through(1);
    assert!(scope.end(Duration::from_secs(20)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_loops_end_last_and_have_the_time_that_the_others_left() {
    let (background, critical) = (Mailboxes::memory(), Mailboxes::memory());
    let (mut low, mut high) = (Gate::new(), Gate::new());
    let first = Arc::new(low.main_loop("background", &background.requests));
    let last = Arc::new(high.main_loop("critical", &critical.requests));
    let group = LoopGroup::new("group").with_priority(last.clone(), 10).with(first.clone());
    let group = Arc::new(group);
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    background.send(json!(1)).await;
    critical.send(json!(1)).await;
    low.begun().await;
    high.begun().await;
    let ends = group.shutdown(Duration::from_secs(20));
    // The critical loop goes on receiving while the other one finishes.
    high.let_through(1);
    critical.send(json!(2)).await;
    assert_eq!(high.begun().await, 2);
    assert!(last.control().wanted().receives());
    low.let_through(1);
    soon("the background ends", first.control().until_stopped()).await;
    high.let_through(1);
    assert!(ends.await);
    assert!(!last.running());
    drop(scope);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_level_that_does_not_end_takes_only_its_share() {
    let mailboxes = Mailboxes::memory();
    let mut gate = Gate::new();
    let critical = Arc::new(gate.main_loop("critical", &mailboxes.requests));
    let group = LoopGroup::new("group").with(Bare::deaf("deaf")).with_priority(critical.clone(), 1);
    let group = Arc::new(group);
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    mailboxes.send(json!(1)).await;
    gate.begun().await;
    let began = Instant::now();
    let ends = group.shutdown(Duration::from_secs(4));
    gate.let_through(1);
    soon("the critical one ends", critical.control().until_stopped()).await;
    assert!(began.elapsed() < Duration::from_millis(3900), "{:?}", began.elapsed());
    assert!(!ends.await, "the deaf one has not ended");
    drop(scope);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_is_in_flight_says_what_is_left_and_can_be_reversed() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let main = Arc::new(gate.main_loop("main", &mailboxes.requests).prefetch(2));
        let group = Arc::new(LoopGroup::new("group").with(main.clone()));
        let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
        mailboxes.send_numbers(3).await;
        gate.begun().await;
        mailboxes.until_count(0, 3, 0).await;
        assert!(group.is_ready(), "{}", mailboxes.kind);
        let left = group.drain();
        assert_eq!(left.in_flight, 1, "{}", mailboxes.kind);
        assert!(!group.is_ready(), "not while it drains");
        mailboxes.until_count(2, 1, 0).await;
        gate.let_through(1);
        soon("nothing is left", group.until_empty()).await;
        mailboxes.until_count(2, 0, 0).await;
        assert!(main.running());
        group.resume();
        assert!(group.is_ready());
        gate.begun().await;
        gate.let_through(2);
        mailboxes.until_count(0, 0, 0).await;
        assert!(scope.end(Duration::from_secs(20)).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_loops_in_one_group_all_end() {
    let mailbox: Arc<dyn Mailbox> = Arc::new(MemoryMailbox::new("shared"));
    let gate = Gate::new();
    let mut group = LoopGroup::new("group");
    for n in 0..1000 {
        group = group.with(Arc::new(gate.main_loop(&n.to_string(), &mailbox)));
    }
    let group = Arc::new(group);
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    until("all run", || group.loops().all(|member| member.running())).await;
    assert!(scope.end(Duration::from_secs(20)).await);
    assert!(group.loops().all(|member| !member.running()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_of_the_group_from_inside_a_handler_only_begins_and_the_handler_completes() {
    let mailboxes = Mailboxes::memory();
    let slot: Arc<std::sync::OnceLock<snakepit::loops::Control>> = Arc::default();
    let of_handler = Arc::clone(&slot);
    let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), move |_: TypedMessage<i64>| {
        let group = of_handler.get().cloned();
        async move {
            let ended = group.expect("set").shutdown(Duration::from_secs(20)).await;
            Ok::<_, HandlerFailure>(ended)
        }
    });
    // A group of groups does not end before the handler, either.
    let inner = Arc::new(LoopGroup::new("inner").with(Arc::new(main)));
    let group = LoopGroup::new("outer").with(inner);
    slot.set(group.control().clone()).expect("once");
    mailboxes.ask(json!(1)).await;
    let began = Instant::now();
    let end = soon("it ends by itself", group.run_without_signals(RunOptions::new())).await;
    assert!(end.expect("no error").is_clean);
    assert!(began.elapsed() < Duration::from_secs(15), "it has waited for itself: {:?}", began.elapsed());
    assert!(!mailboxes.reply().await.read::<bool>().expect("a bool"), "it had not ended yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_now_reaches_all_loops_and_is_not_clean() {
    let mailboxes = Mailboxes::sqlite();
    let mut gate = Gate::new();
    let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
    let group = Arc::new(LoopGroup::new("group").with(main));
    let runs = Arc::clone(&group);
    let task = tokio::spawn(async move { runs.run_without_signals(RunOptions::new()).await });
    mailboxes.send(json!(1)).await;
    gate.begun().await;
    group.stop_now();
    let end = soon("it ends", task).await.expect("no panic").expect("no error");
    assert!(!end.is_clean);
    assert_eq!(mailboxes.count().await.visible, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_stuck_with_a_message_is_told_and_run_again() {
    let mut events = subscribe_to(Level::Warn);
    let mailboxes = Mailboxes::memory();
    let tries = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&tries);
    let main = MainLoop::new("stuck", Arc::clone(&mailboxes.requests), move |_: TypedMessage<i64>| {
        let first = counts.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok::<_, HandlerFailure>("at last")
        }
    });
    let watchdog = Watchdog::new().message_limit(Duration::from_millis(100)).then(IfStuck::Restart);
    let group = Arc::new(LoopGroup::new("group").with(Arc::new(main)).watchdog(watchdog));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let options = snakepit::mailbox::SendOptions::new().reply_to("replies").trace(trace);
    let id = mailboxes.requests.send(b"1".to_vec(), options).await.expect("sent");
    let told = async {
        loop {
            if let Some(Event::LoopStuck { message_id: message, trace, lasted, then, .. }) =
                events.next().await
            {
                return (message, trace, lasted, then);
            }
        }
    };
    let (message, of_span, lasted, then) = soon("it is told", told).await;
    assert_eq!(message.as_deref(), Some(id.to_string().as_str()));
    assert_eq!(of_span.as_deref(), Some(trace));
    assert!(lasted >= Duration::from_millis(100));
    assert_eq!(then, "restart");
    assert_eq!(mailboxes.reply().await.read::<String>().expect("text"), "at last");
    assert!(scope.end(Duration::from_secs(20)).await);
}
