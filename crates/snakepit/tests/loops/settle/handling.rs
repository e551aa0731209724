//! What happens to handled messages, and to loops whose handlers or mailboxes fail.
//!
//! About `crates/loops/src/settle/settlement_rules.rs`, `crates/loops/src/handle/handler_task.rs` and
//! `crates/loops/src/receive/message_loop.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use snakepit::loops::{
    ERROR_ATTRIBUTE, GiveUpAction, HandlerFailure, MainLoop, Replies, RunOptions, Runnable,
};
use snakepit::mailbox::{Backoff, DeadLetterPolicy, DeadReason, Mailbox, TypedMessage};
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Gate, Mailboxes, end, run};
use crate::support::{soon, until};

/// Returns a loop whose handler fails as the message says: with an error of that name, or with a panic.
fn failing(mailbox: &Arc<dyn Mailbox>) -> MainLoop {
    let mut backoff = Backoff::default();
    backoff.first = Duration::from_millis(1);
    MainLoop::new("failing", Arc::clone(mailbox), |request: TypedMessage<String>| async move {
        match request.value.as_str() {
            "fine" => Ok("thanks"),
            "panic" => panic!("what a pity"),
            name => Err(HandlerFailure::new(name, "it failed")),
        }
    })
    .policy(DeadLetterPolicy::new().max_deliveries(3).include("Hopeless").backoff(backoff))
}

fn reason(letter: &snakepit::mailbox::DeadLetter) -> String {
    match &letter.reason {
        DeadReason::Failed { error } => error.clone(),
        other => format!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_panics_are_retried_and_then_buried_and_the_loop_goes_on() {
    for mailboxes in Mailboxes::both() {
        let scope = run(failing(&mailboxes.requests), RunOptions::new()).await;
        for body in ["Odd", "panic", "Hopeless"] {
            mailboxes.send(json!(body)).await;
        }
        mailboxes.send(json!({ "not": "a text" })).await;
        mailboxes.until_count(0, 0, 4).await;
        let dead = mailboxes.requests.dead_letters(10).await.expect("dead letters");
        let of = |text: &str| {
            let found = dead.iter().find(|letter| reason(letter).contains(text));
            found
                .unwrap_or_else(|| panic!("{}: no {text} in {dead:?}", mailboxes.kind))
                .message
                .delivery_count
        };
        assert_eq!(of("Odd: it failed"), 3, "{}", mailboxes.kind);
        assert_eq!(of("panic: what a pity"), 3, "{}", mailboxes.kind);
        assert_eq!(of("Hopeless: it failed"), 1, "an error of that name is given up at once");
        assert_eq!(of("Undecodable"), 1, "a body that cannot be read is given up at once");
        mailboxes.ask(json!("fine")).await;
        assert_eq!(mailboxes.reply().await.read::<String>().expect("text"), "thanks");
        assert!(scope.runnable().running());
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_bury_nothing_that_nobody_has_begun() {
    for mailboxes in Mailboxes::both() {
        mailboxes.send_numbers(6).await;
        // The first message is begun each time, and its handler ends in order. The others wait in hand.
        for _ in 0..8 {
            let mut gate = Gate::new();
            let busy = gate.main_loop("busy", &mailboxes.requests).prefetch(5);
            let scope = run(busy, RunOptions::new()).await;
            gate.begun().await;
            mailboxes.until_count(0, 6, 0).await;
            let stopping = tokio::spawn(end(scope));
            mailboxes.until_count(5, 1, 0).await;
            gate.let_through(1);
            soon("it ends", stopping).await.expect("no panic");
            mailboxes.send(json!("more")).await;
        }
        mailboxes.until_count(6, 0, 0).await;
        let left = mailboxes.take_all().await;
        let counts: Vec<u32> = left.iter().map(|message| message.delivery_count).collect();
        assert_eq!(counts, [1; 6], "{}: each is delivered for the first time", mailboxes.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_given_up_can_be_answered_with_its_error() {
    let mailboxes = Mailboxes::memory();
    let scope = run(failing(&mailboxes.requests).give_up(GiveUpAction::Reply), RunOptions::new()).await;
    mailboxes.ask(json!("Odd")).await;
    let reply = mailboxes.reply().await;
    assert_eq!(reply.attributes.get(ERROR_ATTRIBUTE).map(String::as_str), Some("Odd"));
    let told: Value = reply.read().expect("JSON");
    assert_eq!(told, json!({ "error": { "name": "Odd", "message": "it failed" } }));
    mailboxes.send(json!("Odd")).await;
    mailboxes.until_count(0, 0, 1).await;
    end(scope).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_never_replies_only_acknowledges() {
    let mailboxes = Mailboxes::memory();
    let scope = run(failing(&mailboxes.requests).replies(Replies::Never), RunOptions::new()).await;
    mailboxes.ask(json!("fine")).await;
    mailboxes.until_count(0, 0, 0).await;
    end(scope).await;
    assert_eq!(mailboxes.replies.count().await.expect("counted").visible, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_outlasts_its_lease_many_times_over_is_delivered_once() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        // Long enough for a busy disk to sync an extension in time.
        let options = RunOptions::new().visibility_timeout(Duration::from_secs(1));
        let scope = run(gate.main_loop("main", &mailboxes.requests), options).await;
        mailboxes.send(json!("long")).await;
        gate.begun().await;
        let began = tokio::time::Instant::now();
        // Half of it during a shutdown.
        let mut ends = None;
        while began.elapsed() < Duration::from_secs(6) {
            assert!(mailboxes.take_all().await.is_empty(), "{}: delivered twice", mailboxes.kind);
            if began.elapsed() > Duration::from_secs(3) && ends.is_none() {
                ends = Some(scope.runnable().shutdown(Duration::from_secs(20)));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gate.let_through(1);
        assert!(ends.expect("it was told to end").await);
        assert_eq!(
            mailboxes.count().await,
            snakepit::mailbox::MessageCounts::default(),
            "{}",
            mailboxes.kind
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_fails_is_tried_again_and_shown_and_nothing_is_lost() {
    for mailboxes in Mailboxes::both() {
        let mut gate = Gate::new();
        let flaky = Flaky::new(&mailboxes.requests);
        let mailbox: Arc<dyn Mailbox> = Arc::new(Behind(Arc::clone(&flaky)));
        let options = RunOptions::new().wait(Duration::from_millis(10));
        let scope = run(gate.main_loop("main", &mailbox), options).await;
        mailboxes.send(json!("held")).await;
        gate.begun().await;
        flaky.set_broken(true);
        // The ack fails, and then the receives fail.
        gate.let_through(1);
        until("it has failed a few times", || flaky.failures.load(Ordering::SeqCst) > 3).await;
        let trouble = scope.runnable().control().trouble().expect("trouble");
        assert!(trouble.contains("the disk is on fire"), "{trouble}");
        assert!(scope.runnable().running(), "{}", mailboxes.kind);
        flaky.set_broken(false);
        let mut troubles = scope.runnable().control().troubles();
        soon("it recovers", troubles.wait_for(Option::is_none)).await.expect("a loop");
        mailboxes.until_count(0, 0, 0).await;
        mailboxes.send(json!("next")).await;
        assert_eq!(gate.begun().await, "next");
        gate.let_through(1);
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_from_inside_a_handler_only_begins_and_the_handler_completes() {
    let mailboxes = Mailboxes::memory();
    let slot: Arc<std::sync::OnceLock<snakepit::loops::Control>> = Arc::default();
    let of_handler = Arc::clone(&slot);
    let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), move |_: TypedMessage<Value>| {
        let control = of_handler.get().cloned();
        async move {
            let ended = control.expect("set").shutdown(Duration::from_secs(20)).await;
            Ok::<_, HandlerFailure>(ended)
        }
    });
    slot.set(main.control().clone()).expect("once");
    mailboxes.ask(json!(1)).await;
    let began = Instant::now();
    soon("it ends by itself", main.run(RunOptions::new())).await.expect("no error");
    assert!(began.elapsed() < Duration::from_secs(15), "it has waited for itself: {:?}", began.elapsed());
    assert!(!mailboxes.reply().await.read::<bool>().expect("a bool"), "it had not ended yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_mailbox_ends_the_loop() {
    for mailboxes in Mailboxes::both() {
        let gate = Gate::new();
        let mut scope = run(gate.main_loop("main", &mailboxes.requests), RunOptions::new()).await;
        mailboxes.requests.close();
        soon("it ends", scope.ended()).await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_ends_after_its_last_iteration() {
    for mailboxes in Mailboxes::both() {
        let handled = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&handled);
        let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), move |_: TypedMessage<Value>| {
            counts.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, HandlerFailure>(()) }
        });
        mailboxes.send_numbers(5).await;
        soon("three receives", main.run(RunOptions::new().max_iterations(3))).await.expect("no error");
        assert_eq!(handled.load(Ordering::SeqCst), 3, "{}: one message each", mailboxes.kind);
        mailboxes.until_count(2, 0, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_too_short_for_a_shutdown_are_told() {
    let mut events = subscribe_to(Level::Warn);
    let mailboxes = Mailboxes::memory();
    let mut gate = Gate::new();
    let options = RunOptions::new().visibility_timeout(Duration::from_secs(30));
    let scope = run(gate.main_loop("hasty", &mailboxes.requests), options).await;
    mailboxes.send(json!(1)).await;
    gate.begun().await;
    gate.let_through(1);
    let told = async {
        loop {
            if let Some(Event::LoopLeaseShort { name, visibility, .. }) = events.next().await
                && &*name == "hasty"
            {
                return visibility;
            }
        }
    };
    assert_eq!(soon("a warning", told).await, Duration::from_secs(30));
    end(scope).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_be_are_an_error_and_so_is_a_second_run() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let main = gate.main_loop("main", &mailboxes.requests);
    let zero = RunOptions::new().visibility_timeout(Duration::ZERO);
    assert!(main.run(zero).await.is_err());
    assert!(main.run(RunOptions::new().wait(Duration::from_secs(21))).await.is_err());
    let scope = run(main, RunOptions::new()).await;
    let again = scope.runnable().run(RunOptions::new()).await.expect_err("it runs");
    assert!(again.to_string().contains("main is already running"), "{again}");
    end(scope).await;
}
