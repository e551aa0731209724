//! The tests and usage patterns that the specification asks for. `process` tests SIGTERM in a real process.
//!
//! About `crates/loops/src/handle/main_loop.rs`, `crates/loops/src/group/run.rs` and
//! `crates/loops/src/loop_control/loop_scope.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use snakepit::ShutdownCoordinator;
use snakepit::loops::{LoopGroup, LoopScope, RunOptions, Runnable, SHUTDOWN_TIMEOUT};

use crate::mailboxes::{Gate, Mailboxes};
use crate::support::soon;

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_stops_the_loop() {
    for mailboxes in Mailboxes::both() {
        let gate = Gate::new();
        let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
        let runs = Arc::clone(&main);
        let task = tokio::spawn(async move { runs.run(RunOptions::new()).await });
        soon("it runs", main.control().until_running()).await;
        assert!(main.running());
        assert!(main.shutdown(Duration::from_secs(5)).await);
        assert!(!main.running());
        soon("its task ends", task).await.expect("no panic").expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_what_is_in_flight() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
        mailboxes.ask(json!("slow")).await;
        let runs = Arc::clone(&main);
        let task = tokio::spawn(async move { runs.run(RunOptions::new().max_iterations(1)).await });
        gate.begun().await;
        let ends = tokio::spawn(main.shutdown(Duration::from_secs(20)));
        assert!(main.running(), "{}: it waits", mailboxes.kind);
        gate.let_through(1);
        assert!(ends.await.expect("no panic"));
        soon("its task ends", task).await.expect("no panic").expect("no error");
        assert_eq!(
            mailboxes.reply().await.read::<String>().expect("text"),
            "slow",
            "the message was finished"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_coordinates_the_shutdown() {
    for mailboxes in Mailboxes::both() {
        let gate = Gate::new();
        let first = Arc::new(gate.main_loop("first", &mailboxes.requests));
        let second = Arc::new(gate.main_loop("second", &mailboxes.replies));
        let group = Arc::new(LoopGroup::new("group").with(first.clone()).with(second.clone()));
        let runs = Arc::clone(&group);
        let task = tokio::spawn(async move { runs.run_without_signals(RunOptions::new()).await });
        soon("both run", async {
            first.control().until_running().await;
            second.control().until_running().await;
        })
        .await;
        assert!(group.shutdown(Duration::from_secs(5)).await, "{}", mailboxes.kind);
        assert!(!first.running() && !second.running());
        soon("its task ends", task).await.expect("no panic").expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pattern_1_a_single_loop_with_signals() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let coordinator = ShutdownCoordinator::install().expect("installed");
    let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
    snakepit::loops::register_loop(&coordinator, main.clone(), SHUTDOWN_TIMEOUT);
    let triggers = Arc::clone(&coordinator);
    let of_control = main.control().clone();
    tokio::spawn(async move {
        of_control.until_running().await;
        triggers.trigger();
    });
    soon("it runs until the signal", main.run(RunOptions::new())).await.expect("no error");
    coordinator.reset();
}

#[tokio::test(flavor = "multi_thread")]
async fn pattern_2_several_loops_with_a_group() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let first = Arc::new(gate.main_loop("first", &mailboxes.requests));
    let second = Arc::new(gate.main_loop("second", &mailboxes.replies));
    let group = LoopGroup::new("group").with(first.clone()).with(second);
    let of_control = first.control().clone();
    tokio::spawn(async move {
        of_control.until_running().await;
        ShutdownCoordinator::get().expect("the group has installed it").trigger();
    });
    let end = soon("until the signal", group.run(RunOptions::new())).await.expect("no error");
    assert!(end.is_clean);
    assert_eq!(end.status, 0);
    ShutdownCoordinator::get().expect("installed").reset();
}

#[tokio::test(flavor = "multi_thread")]
async fn pattern_3_a_scope_ends_its_loops() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
    {
        let group = Arc::new(LoopGroup::new("group").with(main.clone()));
        let _scope = LoopScope::start(group, RunOptions::new());
        soon("it runs", main.control().until_running()).await;
    }
    soon("it has ended", main.control().until_stopped()).await;
    let group = Arc::new(LoopGroup::new("again").with(Arc::new(gate.main_loop("next", &mailboxes.requests))));
    let scope = LoopScope::start(group, RunOptions::new());
    assert!(scope.end(Duration::from_secs(20)).await, "a scope that is ended is waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn pattern_4_programmatic_shutdown() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
    let runs = Arc::clone(&main);
    let task = tokio::spawn(async move { runs.run(RunOptions::new()).await });
    soon("it runs", main.control().until_running()).await;
    assert!(main.shutdown(Duration::from_mins(1)).await, "it stopped within the timeout");
    soon("its task ends", task).await.expect("no panic").expect("no error");
}
