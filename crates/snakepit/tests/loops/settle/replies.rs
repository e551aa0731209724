//! Every request is answered, and a reply that cannot be delivered does not run its handler again.
//!
//! About `crates/loops/src/settle/settlement_rules.rs` and `crates/loops/src/settle/settlement.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use snakepit::loops::{ERROR_ATTRIBUTE, GiveUpAction, HandlerFailure, MainLoop, RunOptions};
use snakepit::mailbox::{
    AttemptEnd, Backoff, DeadLetterPolicy, Mailbox, MailboxError, MemoryMailboxes, NackOptions,
    ReceiveOptions, RequestOptions, SendOptions, SettingsChange, SqliteMailbox, TypedMessage,
};
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::mailboxes::{Mailboxes, end, run};
use crate::support::soon;

/// Returns a loop that squares numbers, and the count of its runs.
fn squares(mailbox: &Arc<dyn Mailbox>) -> (MainLoop, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let squares = MainLoop::new("squares", Arc::clone(mailbox), move |request: TypedMessage<i64>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<i64, HandlerFailure>(request.value * request.value) }
    });
    (squares, runs)
}

async fn received(mailbox: &dyn Mailbox) -> snakepit::mailbox::Message {
    let receive = ReceiveOptions::new().wait(Duration::from_secs(20));
    soon("a message", mailbox.receive(receive)).await.expect("received").pop().expect("a message")
}

/// As in docs/loops.md: a message is sent, and the mailbox for the replies is opened only afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_runs_its_handler_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let office = MemoryMailboxes::new();
    let file = dir.path().join("mail.db");
    let numbers: [Arc<dyn Mailbox>; 2] = [
        Arc::new(office.mailbox("numbers")),
        Arc::new(SqliteMailbox::open_named(&file, "numbers").expect("opened")),
    ];
    for (place, numbers) in numbers.iter().enumerate() {
        let (squares, runs) = squares(numbers);
        let scope = run(squares.concurrency(8), RunOptions::new()).await;
        let request =
            numbers.send(b"12".to_vec(), SendOptions::new().reply_to("replies")).await.expect("sent");
        let settled = async {
            while numbers.count().await.expect("counted") != snakepit::mailbox::MessageCounts::default() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        soon("it is answered before anybody has opened the replies", settled).await;
        let replies: Arc<dyn Mailbox> = match place {
            0 => Arc::new(office.mailbox("replies")),
            _ => Arc::new(SqliteMailbox::open_named(&file, "replies").expect("opened")),
        };
        let reply = received(replies.as_ref()).await;
        assert_eq!(reply.read::<i64>().expect("a number"), 144);
        assert_eq!(reply.in_reply_to, Some(request));
        end(scope).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_to_a_closed_mailbox_is_kept_until_that_is_opened_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = |queue: &str| SqliteMailbox::open_named(dir.path().join("mail.db"), queue).expect("opened");
    let numbers: Arc<dyn Mailbox> = Arc::new(open("numbers"));
    let closed = open("replies");
    closed.close();
    let (squares, runs) = squares(&numbers);
    let scope = run(squares, RunOptions::new()).await;
    let mut events = subscribe_to(Level::Debug);
    numbers.send(b"3".to_vec(), SendOptions::new().reply_to("replies")).await.expect("sent");
    let handled = async { while !matches!(events.next().await, Some(Event::LoopAttemptDone { .. })) {} };
    soon("it is handled", handled).await;
    let replies = open("replies");
    assert_eq!(received(&replies).await.read::<i64>().expect("a number"), 9);
    end(scope).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(numbers.count().await.expect("counted"), snakepit::mailbox::MessageCounts::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_nobody_takes_is_given_up_and_the_handler_is_not_run_again() {
    let mailboxes = Mailboxes::memory();
    mailboxes.replies.close();
    let (squares, runs) = squares(&mailboxes.requests);
    // The attempts end when the lease does.
    let options = RunOptions::new().visibility_timeout(Duration::from_secs(1));
    let scope = run(squares, options).await;
    mailboxes.ask(json!(3)).await;
    mailboxes.until_count(0, 0, 1).await;
    let letter = mailboxes.requests.dead_letters(1).await.expect("dead letters").remove(0);
    let error = letter.reason.error().expect("an error");
    assert!(error.contains("ReplyFailed") && error.contains("replies is closed"), "{error}");
    assert_eq!((letter.message.delivery_count, runs.load(Ordering::SeqCst)), (1, 1));
    end(scope).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_written_is_given_up_at_once() {
    let mailboxes = Mailboxes::memory();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let odd = MainLoop::new("odd", Arc::clone(&mailboxes.requests), move |_: TypedMessage<Value>| {
        counted.fetch_add(1, Ordering::SeqCst);
        // JSON has no such keys.
        async move { Ok::<_, HandlerFailure>(HashMap::from([(vec![1], 2)])) }
    });
    let scope = run(odd, RunOptions::new()).await;
    mailboxes.ask(json!(1)).await;
    mailboxes.until_count(0, 0, 1).await;
    end(scope).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_read_gets_its_error() {
    for mailboxes in Mailboxes::both() {
        let (squares, runs) = squares(&mailboxes.requests);
        let scope = run(squares.give_up(GiveUpAction::Reply), RunOptions::new()).await;
        mailboxes.ask(json!({ "no": "number" })).await;
        let reply = mailboxes.reply().await;
        assert_eq!(reply.attributes.get(ERROR_ATTRIBUTE).map(String::as_str), Some("Undecodable"));
        assert_eq!(reply.read::<Value>().expect("JSON")["error"]["name"], "Undecodable");
        let asked =
            mailboxes.requests.request(b"\"text\"".to_vec(), RequestOptions::new()).await.expect("an answer");
        let outcome = asked.read::<i64>();
        assert!(matches!(&outcome, Err(MailboxError::ErrorReply { name, .. }) if name == "Undecodable"));
        mailboxes.send(json!("nobody wants to know")).await;
        mailboxes.until_count(0, 0, 1).await;
        end(scope).await;
        assert_eq!(runs.load(Ordering::SeqCst), 0, "{}", mailboxes.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_the_same_time_each_get_their_own_answer() {
    for mailboxes in Mailboxes::both() {
        let (squares, runs) = squares(&mailboxes.requests);
        let scope = run(squares.concurrency(8).prefetch(8), RunOptions::new()).await;
        let ask = |number: i64| {
            let requests = Arc::clone(&mailboxes.requests);
            async move {
                // Some senders also want it in a mailbox.
                let send =
                    if number % 3 == 0 { SendOptions::new().reply_to("replies") } else { SendOptions::new() };
                let options = RequestOptions::new().timeout(Duration::from_mins(1)).send(send);
                let reply = requests.request(number.to_string().into_bytes(), options).await;
                reply.expect("an answer").read::<i64>().expect("a number")
            }
        };
        let answers = soon("all are answered", join_all((0..60).map(ask))).await;
        assert_eq!(
            answers,
            (0..60).map(|number| number * number).collect::<Vec<i64>>(),
            "{}",
            mailboxes.kind
        );
        end(scope).await;
        assert_eq!(runs.load(Ordering::SeqCst), 60);
        assert_eq!(mailboxes.replies.count().await.expect("counted").visible, 20);
    }
}

fn at_once() -> Backoff {
    Backoff::new(Duration::from_millis(1), Duration::from_millis(1))
}

/// Returns a loop that fails, and the count of its runs.
fn failing(mailbox: &Arc<dyn Mailbox>) -> (MainLoop, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let failing = MainLoop::new("failing", Arc::clone(mailbox), move |_: TypedMessage<Value>| {
        let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Err::<(), _>(HandlerFailure::new("Odd", format!("run {run}"))) }
    });
    (failing, runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loops_limit_holds_above_and_below_five_for_failures_and_for_crashes() {
    for limit in [2, 7] {
        for mailboxes in Mailboxes::both() {
            let (failing, runs) = failing(&mailboxes.requests);
            let policy = DeadLetterPolicy::new().max_deliveries(limit).backoff(at_once());
            let scope = run(failing.policy(policy), RunOptions::new()).await;
            mailboxes.send(json!("x")).await;
            mailboxes.until_count(0, 0, 1).await;
            end(scope).await;
            assert_eq!(runs.load(Ordering::SeqCst), limit as usize, "{}", mailboxes.kind);
            let letter = mailboxes.requests.dead_letters(1).await.expect("dead letters").remove(0);
            assert_eq!(letter.message.last_error(), Some(&*format!("Odd: run {limit}")));
            let told: Vec<u32> = letter.message.attempts.iter().map(|attempt| attempt.delivery).collect();
            assert_eq!(told, (1..=limit).collect::<Vec<u32>>(), "{}", mailboxes.kind);
            // Receivers without a limit of their own use the same limit, even if they die of the message.
            mailboxes.send(json!("y")).await;
            for delivery in 1..=limit {
                let options = ReceiveOptions::new().visibility_timeout(Duration::ZERO);
                let crashed = mailboxes.requests.receive(options).await.expect("received");
                assert_eq!(crashed[0].delivery_count, delivery, "{}", mailboxes.kind);
            }
            mailboxes.until_count(0, 0, 2).await;
            let letter = mailboxes.requests.dead_letters(2).await.expect("dead letters").remove(1);
            let lapses = letter.message.attempts.iter().filter(|it| it.end == AttemptEnd::Lapse).count();
            assert_eq!(lapses, limit as usize, "{}", mailboxes.kind);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_without_a_limit_leaves_the_mailbox_its_own() {
    for mailboxes in Mailboxes::both() {
        mailboxes.requests.configure(SettingsChange::new().max_deliveries(3)).await.expect("set");
        let (failing, runs) = failing(&mailboxes.requests);
        let policy = DeadLetterPolicy::new().backoff(at_once());
        let scope = run(failing.policy(policy), RunOptions::new()).await;
        mailboxes.send(json!("x")).await;
        mailboxes.until_count(0, 0, 1).await;
        end(scope).await;
        assert_eq!(runs.load(Ordering::SeqCst), 3, "{}", mailboxes.kind);
        assert_eq!(mailboxes.requests.settings().await.expect("settings").max_deliveries, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_told_and_remembered_with_its_error() {
    let mailboxes = Mailboxes::sqlite();
    mailboxes.send(json!("x")).await;
    // Another receiver had the message before, and gave it back.
    let before = mailboxes.requests.receive(ReceiveOptions::new()).await.expect("received").remove(0);
    before.nack(NackOptions::new().error("not today")).await.expect("a nack");
    let mut events = subscribe_to(Level::Debug);
    let (failing, _) = failing(&mailboxes.requests);
    let policy = DeadLetterPolicy::new().max_deliveries(3).backoff(at_once());
    let scope = run(failing.policy(policy), RunOptions::new()).await;
    mailboxes.until_count(0, 0, 1).await;
    end(scope).await;
    let mut told = Vec::new();
    for event in events.drain() {
        if let Event::LoopAttemptFailed { delivery, of, error, then, message_id, .. } = &event {
            assert_eq!(message_id.as_ref(), before.id.to_string());
            told.push((*delivery, *of, error.to_string(), *then));
        }
    }
    assert_eq!(told, [(2, 3, "Odd: run 1".into(), "again"), (3, 3, "Odd: run 2".into(), "bury")]);
    let letter = mailboxes.requests.dead_letters(1).await.expect("dead letters").remove(0);
    let errors: Vec<Option<&str>> = letter.message.attempts.iter().map(|it| it.error.as_deref()).collect();
    assert_eq!(errors, [Some("not today"), Some("Odd: run 1"), Some("Odd: run 2")]);
}
