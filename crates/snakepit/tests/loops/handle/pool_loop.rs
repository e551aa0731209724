//! Loops in front of pools of Python workers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::args;
use snakepit::loops::{
    GiveUpAction, HandlerFailure, LoopGroup, LoopScope, MainLoop, PoolLoop, PoolLoopOptions, RunOptions,
    Runnable, Watchdog,
};
use snakepit::mailbox::{DeadLetterPolicy, LeaseChange, ReceiveOptions, SendOptions, TypedMessage};
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Mailboxes, end, run};
use crate::support::{Pit, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_loop_answers_messages_by_a_command() {
    let pit = Pit::start(worker("basic.py").workers(2)).await;
    for mailboxes in Mailboxes::both() {
        let options = PoolLoopOptions::new("add").concurrency(4);
        let scope = run(
            PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool"),
            RunOptions::new(),
        )
        .await;
        mailboxes.ask(json!({ "a": 1, "b": 2 })).await;
        assert_eq!(mailboxes.reply().await.read::<i64>().expect("a number"), 3, "{}", mailboxes.kind);
        mailboxes.ask(json!([20, 22])).await;
        assert_eq!(mailboxes.reply().await.read::<i64>().expect("a number"), 42, "{}", mailboxes.kind);
        end(scope).await;
        assert_eq!(mailboxes.count().await, snakepit::mailbox::MessageCounts::default());
    }
    let wrong = PoolLoopOptions::new("add").pool("nowhere");
    assert!(PoolLoop::new(&pit, Mailboxes::memory().requests, &wrong).is_err());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_pool_loop_are_called_in_batches_unless_the_command_is_told_their_ids() {
    let pit = Pit::start(worker("batches.py").workers(1)).await;
    let mailboxes = Mailboxes::memory();
    let about = |options: PoolLoopOptions| {
        PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options.concurrency(32)).expect("a pool")
    };
    for number in 0..100 {
        mailboxes.ask(json!({ "x": number })).await;
    }
    let scope = run(about(PoolLoopOptions::new("about")), RunOptions::new()).await;
    let mut largest = 0;
    for _ in 0..100 {
        let (size, _, metadata): (usize, Value, Value) = mailboxes.reply().await.read().expect("an answer");
        assert_eq!(metadata, json!({}));
        largest = largest.max(size);
    }
    assert!(largest > 1, "no call was gathered with another");
    end(scope).await;
    let scope = run(about(PoolLoopOptions::new("about").tell_id()), RunOptions::new()).await;
    let id = mailboxes
        .requests
        .send(b"{\"x\": 1}".to_vec(), SendOptions::new().reply_to("replies"))
        .await
        .expect("sent");
    let (_, _, metadata): (usize, Value, Value) = mailboxes.reply().await.read().expect("an answer");
    assert_eq!(metadata, json!({ "message": id.to_string() }));
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_is_known_to_the_policy_by_its_type() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mailboxes = Mailboxes::memory();
    let options = PoolLoopOptions::new("fail").give_up(GiveUpAction::Reply);
    let failing = PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool");
    let scope = run(failing.policy(DeadLetterPolicy::new().include("ValueError")), RunOptions::new()).await;
    mailboxes.ask(json!("oh")).await;
    let told: Value = mailboxes.reply().await.read().expect("JSON");
    assert_eq!(told["error"]["name"], "ValueError");
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_costs_a_delivery_and_not_the_loop() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mailboxes = Mailboxes::sqlite();
    let options = PoolLoopOptions::new("die").max_deliveries(1);
    let scope = run(
        PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool"),
        RunOptions::new(),
    )
    .await;
    mailboxes.send(json!(3)).await;
    mailboxes.until_count(0, 0, 1).await;
    let dead = mailboxes.requests.dead_letters(1).await.expect("dead letters");
    assert!(format!("{:?}", dead[0].reason).contains("WorkerDied"), "{dead:?}");
    assert!(scope.runnable().running());
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_can_call_a_pool_and_stop_now_cancels_the_call() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mailboxes = Mailboxes::sqlite();
    let calls = pit.pools()[0].clone();
    let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), move |request: TypedMessage<f64>| {
        let call = calls.call::<f64>("sleep", args! { seconds: request.value });
        async move { Ok::<_, HandlerFailure>(call.await?) }
    });
    let scope = run(main, RunOptions::new()).await;
    mailboxes.ask(json!(0.01)).await;
    assert!(mailboxes.reply().await.read::<f64>().is_ok());
    mailboxes.send(json!(600.0)).await;
    let pool = &pit.pools()[0];
    until("the call is under way", || pool.in_flight() == 1).await;
    scope.runnable().stop_now();
    soon("it ends", scope.runnable().control().until_stopped()).await;
    assert_eq!(mailboxes.count().await.visible, 1, "given back");
    until("the call is gone", || pool.in_flight() == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_tells_where_the_python_worker_is() {
    let mut events = subscribe_to(Level::Warn);
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mailboxes = Mailboxes::memory();
    let options = PoolLoopOptions::new("sleep");
    let sleeper = Arc::new(PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool"));
    let watchdog = Watchdog::new().message_limit(Duration::from_millis(300));
    let group = Arc::new(LoopGroup::new("group").with(sleeper).watchdog(watchdog));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    mailboxes.send(json!(600)).await;
    let told = async {
        loop {
            if let Some(Event::LoopStuck { stack, .. }) = events.next().await {
                return stack;
            }
        }
    };
    let stack = soon("it is told", told).await.expect("a stack");
    assert!(stack.contains("basic.py") && stack.contains("sleep"), "{stack}");
    group.stop_now();
    soon("it ends", group.control().until_stopped()).await;
    drop(scope);
    pit.end_now().await;
}

/// What a loop has done to its mailbox.
#[derive(Debug)]
struct Seen {
    asked: Vec<ReceiveOptions>,
    /// The pauses of messages that failed.
    pauses: Vec<Duration>,
    /// How long leases were extended.
    extended: Vec<Duration>,
    has_buried: bool,
}

impl Seen {
    fn by(flaky: &Flaky) -> Self {
        let changes = flaky.changes.lock().expect("no panic").clone();
        Self {
            asked: flaky.asked.lock().expect("no panic").clone(),
            pauses: changes.iter().filter_map(pause).collect(),
            extended: changes.iter().filter_map(extension).collect(),
            has_buried: changes.iter().any(|change| matches!(change, LeaseChange::Bury(_))),
        }
    }
}

fn pause(change: &LeaseChange) -> Option<Duration> {
    match change {
        LeaseChange::Nack(options) => Some(options.visibility),
        _ => None,
    }
}

fn extension(change: &LeaseChange) -> Option<Duration> {
    match change {
        LeaseChange::Extend(visibility, _) => Some(*visibility),
        _ => None,
    }
}

/// An option, a call, and how the mailbox shows that the option acts.
type OptionInAction = (&'static str, PoolLoopOptions, Value, fn(&Seen) -> bool);

fn options_in_action() -> Vec<OptionInAction> {
    let (millis, secs) = (Duration::from_millis, Duration::from_secs);
    let (fail, sleep) = (|| PoolLoopOptions::new("fail"), || PoolLoopOptions::new("sleep"));
    vec![
        ("no option: a pause of one second", fail(), json!("oh"), |seen| {
            // A quarter of a pause is random.
            seen.pauses.first().is_some_and(|pause| (750..=1_000).contains(&pause.as_millis()))
        }),
        ("no option: leases of five minutes, waits of 20 s", fail(), json!("oh"), |seen| {
            let first = seen.asked[0];
            (first.visibility_timeout, first.wait) == (Duration::from_mins(5), Duration::from_secs(20))
        }),
        ("backoff", fail().backoff(secs(40)), json!("oh"), |seen| {
            seen.pauses.first().is_some_and(|pause| (30..=40).contains(&pause.as_secs()))
        }),
        ("longest_backoff", fail().backoff(millis(20)).longest_backoff(millis(30)), json!("oh"), |seen| {
            seen.pauses.len() == 4
                && seen.pauses[1..].iter().all(|pause| (22..=30).contains(&pause.as_millis()))
        }),
        ("give_up_on", fail().give_up_on(vec!["ValueError".to_owned()]), json!("oh"), |seen| {
            seen.has_buried && seen.pauses.is_empty()
        }),
        ("visibility_timeout", sleep().visibility_timeout(millis(300)), json!(0.5), |seen| {
            let lease = Duration::from_millis(300);
            seen.asked[0].visibility_timeout == lease && seen.extended.first() == Some(&lease)
        }),
        ("wait", fail().wait(secs(3)), json!("oh"), |seen| seen.asked[0].wait == Duration::from_secs(3)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_option_of_a_pool_loop_acts() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    for (option, options, body, acts) in options_in_action() {
        let mailboxes = Mailboxes::memory();
        let flaky = Flaky::new(&mailboxes.requests);
        let pool_loop = PoolLoop::new(&pit, Arc::new(Behind(Arc::clone(&flaky))), &options).expect("a pool");
        let scope = run(pool_loop, RunOptions::new()).await;
        mailboxes.send(body).await;
        until(option, || Seen::by(&flaky).asked.len() > 1 && acts(&Seen::by(&flaky))).await;
        end(scope).await;
    }
    pit.end().await;
}
