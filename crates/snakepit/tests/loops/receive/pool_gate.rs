//! A pool without workers for a while costs no message that no handler has begun.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use snakepit::PoolOptions;
use snakepit::loops::{Intake, LoopScope, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{DeadLetterPolicy, MessageCounts};
use snakepit::policy::{Breaker, Restarts};
use snakepit::telemetry::Event;
use tempfile::TempDir;

use crate::mailboxes::{Mailboxes, end, run};
use crate::support::{self, Pit, heard, python, soon, until, worker};

const MESSAGES: usize = 20;
const CONCURRENCY: usize = 4;

/// A file that decides whether workers start.
struct Mood {
    _home: TempDir,
    file: PathBuf,
}

impl Mood {
    fn good() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        Self { file: home.path().join("bad mood"), _home: home }
    }

    fn turn_bad(&self) {
        std::fs::write(&self.file, "").expect("a file");
    }

    fn mend(&self) {
        std::fs::remove_file(&self.file).expect("the file");
    }

    /// Returns a pool of one worker, which is tried again soon, however often it fails.
    fn pool(&self, queue_timeout: Duration) -> PoolOptions {
        let quick = Restarts::default()
            .failures(3)
            .first_pause(Duration::from_millis(5))
            .longest_pause(Duration::from_millis(100));
        snakepit::python(python("moody.py").env("MOODY_FILE", &self.file))
            .workers(1)
            .restarts(quick)
            .queue_timeout(queue_timeout)
    }
}

/// Starts a loop that gives a message up after one failure.
async fn start(pit: &Pit, mailboxes: &Mailboxes, command: &str) -> LoopScope<PoolLoop> {
    let options = PoolLoopOptions::new(command).concurrency(CONCURRENCY).prefetch(2).max_deliveries(1);
    run(PoolLoop::new(pit, Arc::clone(&mailboxes.requests), &options).expect("a pool"), RunOptions::new())
        .await
}

async fn ask_numbers(mailboxes: &Mailboxes) {
    for number in 0..MESSAGES {
        mailboxes.ask(json!([number])).await;
    }
}

async fn all_are_answered_once(mailboxes: &Mailboxes) {
    let mut answers = BTreeSet::new();
    for _ in 0..MESSAGES {
        assert!(
            answers.insert(mailboxes.reply().await.read::<usize>().expect("a number")),
            "{}",
            mailboxes.kind
        );
    }
    assert_eq!(answers, (0..MESSAGES).collect(), "{}", mailboxes.kind);
    mailboxes.until_count(0, 0, 0).await;
    assert_eq!(mailboxes.replies.count().await.expect("counted").visible, 0, "{}", mailboxes.kind);
}

/// Checks that all messages are back, and that none of their deliveries has counted.
async fn all_are_back(mailboxes: &Mailboxes) {
    let count = mailboxes.count().await;
    let mut expected = MessageCounts::default();
    expected.visible = MESSAGES as u64;
    assert_eq!(count, expected, "{}", mailboxes.kind);
    for message in mailboxes.take_all().await {
        assert_eq!(message.delivery_count, 1, "{}: {message:?}", mailboxes.kind);
    }
}

async fn until_in_trouble(scope: &LoopScope<PoolLoop>) {
    let mut troubles = scope.runnable().control().troubles();
    let told = |trouble: &Option<String>| trouble.as_ref().is_some_and(|it| it.contains("has no worker"));
    soon("it is shown", troubles.wait_for(told)).await.expect("a loop");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_come_while_all_workers_fail_are_handled_once_when_they_are_mended() {
    for mailboxes in Mailboxes::both() {
        let mood = Mood::good();
        let pit = Pit::start(mood.pool(Duration::from_millis(50))).await;
        let pool = pit.pools()[0].clone();
        let scope = start(&pit, &mailboxes, "echo").await;
        mood.turn_bad();
        support::kill(support::pids(&pool)[0]);
        until_in_trouble(&scope).await;
        ask_numbers(&mailboxes).await;
        let mut events = pool.events();
        for _ in 0..5 {
            heard(&mut events, |event| matches!(event, Event::WorkerNotStarted { .. }).then_some(())).await;
        }
        let count = mailboxes.count().await;
        assert_eq!((count.visible, count.dead), (MESSAGES as u64, 0), "nothing is received in vain");
        mood.mend();
        all_are_answered_once(&mailboxes).await;
        assert_eq!(scope.runnable().control().trouble(), None);
        end(scope).await;
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn received_messages_wait_for_a_worker_and_are_handled_once() {
    for mailboxes in Mailboxes::both() {
        let mood = Mood::good();
        mood.turn_bad();
        // The pool sleeps until it is called, so the trouble is unknown until the first messages are in hand.
        let pit = Pit::start(mood.pool(Duration::from_millis(50)).lazy()).await;
        let pool = pit.pools()[0].clone();
        ask_numbers(&mailboxes).await;
        let scope = start(&pit, &mailboxes, "echo").await;
        until("they have waited in vain", || pool.outcomes().queue_timed_out >= CONCURRENCY as u64).await;
        until_in_trouble(&scope).await;
        let before = pool.outcomes().queue_timed_out;
        let mut events = pool.events();
        for _ in 0..5 {
            heard(&mut events, |event| matches!(event, Event::WorkerNotStarted { .. }).then_some(())).await;
        }
        let count = mailboxes.count().await;
        assert!(count.in_flight >= CONCURRENCY as u64 && count.dead == 0, "{}: {count:?}", mailboxes.kind);
        let tries = pool.outcomes().queue_timed_out - before;
        assert!(tries <= CONCURRENCY as u64, "{tries} calls of a pool without workers");
        mood.mend();
        all_are_answered_once(&mailboxes).await;
        end(scope).await;
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_waits_for_a_worker_ends_at_once_and_gives_its_messages_back() {
    // Some wait at the door, others in the pool's queue.
    for queue_timeout in [Duration::from_millis(50), Duration::from_mins(10)] {
        for mailboxes in Mailboxes::both() {
            let mood = Mood::good();
            mood.turn_bad();
            let pit = Pit::start(mood.pool(queue_timeout).lazy()).await;
            let pool = pit.pools()[0].clone();
            ask_numbers(&mailboxes).await;
            let scope = start(&pit, &mailboxes, "echo").await;
            until_in_trouble(&scope).await;
            until("some are in hand", || scope.runnable().control().in_flight() == CONCURRENCY).await;
            let began = Instant::now();
            end(scope).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{}: {:?}", mailboxes.kind, began.elapsed());
            all_are_back(&mailboxes).await;
            assert_eq!(pool.queued(), 0, "nobody waits any more");
            pit.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_gives_back_what_waits_for_a_worker() {
    let mailboxes = Mailboxes::memory();
    let mood = Mood::good();
    mood.turn_bad();
    let pit = Pit::start(mood.pool(Duration::from_mins(10)).lazy()).await;
    ask_numbers(&mailboxes).await;
    let scope = start(&pit, &mailboxes, "echo").await;
    until_in_trouble(&scope).await;
    scope.runnable().control().set_intake(Intake::Paused);
    soon("it is empty", scope.runnable().control().until_empty()).await;
    mailboxes.until_count(MESSAGES as u64, 0, 0).await;
    scope.runnable().control().set_intake(Intake::Open);
    mood.mend();
    all_are_answered_once(&mailboxes).await;
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_has_stopped_costs_its_loop_no_message() {
    for mailboxes in Mailboxes::both() {
        let pit = Pit::start(worker("moody.py").workers(1)).await;
        let scope = start(&pit, &mailboxes, "echo").await;
        pit.stop().await;
        ask_numbers(&mailboxes).await;
        let mut troubles = scope.runnable().control().troubles();
        let told = |trouble: &Option<String>| trouble.as_ref().is_some_and(|it| it.contains("has stopped"));
        soon("it is shown", troubles.wait_for(told)).await.expect("a loop");
        mailboxes.until_count(MESSAGES as u64, 0, 0).await;
        assert!(scope.runnable().running());
        end(scope).await;
        all_are_back(&mailboxes).await;
        pit.prove_nothing_is_left();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_find_a_pool_full_or_busy_are_tried_until_it_takes_them() {
    let mailboxes = Mailboxes::memory();
    let busy = worker("basic.py").workers(1).queue_limit(1).queue_timeout(Duration::from_millis(10));
    let pit = Pit::start(busy).await;
    let pool = pit.pools()[0].clone();
    let scope = start(&pit, &mailboxes, "sleep").await;
    for _ in 0..MESSAGES {
        mailboxes.ask(json!([0.03])).await;
    }
    for _ in 0..MESSAGES {
        mailboxes.reply().await;
    }
    mailboxes.until_count(0, 0, 0).await;
    let outcomes = pool.outcomes();
    assert!(outcomes.saturated > 0 && outcomes.queue_timed_out > 0, "{outcomes:?}");
    assert_eq!(outcomes.ok, MESSAGES as u64, "each once: {outcomes:?}");
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_meet_an_open_circuit_wait_until_it_is_closed() {
    let mailboxes = Mailboxes::memory();
    let breaker = Breaker::default().failures(2).open_for(Duration::from_millis(300));
    let pit = Pit::start(worker("basic.py").workers(1).restarts(support::at_once()).breaker(breaker)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    for _ in 0..2 {
        let _ = soon("a death", pool.call::<snakepit::Value>("die", (3,))).await.expect_err("it dies");
    }
    heard(&mut events, |event| matches!(event, Event::CircuitOpened { .. }).then_some(())).await;
    let scope = start(&pit, &mailboxes, "echo").await;
    ask_numbers(&mailboxes).await;
    all_are_answered_once(&mailboxes).await;
    assert!(pool.outcomes().refused > 0, "it was open");
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_names_the_shortage_still_gives_messages_up_for_it() {
    let mailboxes = Mailboxes::memory();
    let mood = Mood::good();
    mood.turn_bad();
    let pit = Pit::start(mood.pool(Duration::from_millis(50)).lazy()).await;
    let named = PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &PoolLoopOptions::new("echo"));
    let policy = DeadLetterPolicy::new().include("NoWorkers");
    let scope = run(named.expect("a pool").policy(policy), RunOptions::new()).await;
    mailboxes.send(json!([1])).await;
    mailboxes.until_count(0, 0, 1).await;
    end(scope).await;
    pit.end().await;
}
