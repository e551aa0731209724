//! Mailboxes in memory as users hold them: names, handles and events. The `proving` crate tests what all backends share.

use std::time::Duration;

use snakepit::mailbox::{
    AfterFailure, DeadLetterPolicy, DeadReason, Mailbox, MemoryMailbox, MemoryMailboxes, ReceiveOptions,
    SendOptions,
};
use snakepit::telemetry::{self, Event, Subscription};

const SHORT: Duration = Duration::from_secs(1);

/// Returns the next event of this mailbox. Tests in one process may receive each other's events.
fn next(events: &mut Subscription, mailbox: &str) -> Event {
    loop {
        let event = events.next_within(Duration::from_secs(10)).expect("an event");
        let is_ours = event
            .fields()
            .iter()
            .any(|(name, value)| *name == "mailbox" && *value == telemetry::FieldValue::Text(mailbox));
        if is_ours {
            return event;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_message_is_an_event() {
    let policy = DeadLetterPolicy::new().max_deliveries(1);
    let mailbox = MemoryMailbox::with_policy("told", policy).expect("a mailbox");
    let mut events = telemetry::subscribe();
    let batch = ["acked", "nacked", "lapsed"].map(|body| (body.as_bytes().to_vec(), SendOptions::new()));
    mailbox.send_all(batch.into()).await.expect("they are sent");
    assert!(matches!(next(&mut events, "told"), Event::MailboxSent { messages: 3, .. }));
    let messages = mailbox
        .receive(ReceiveOptions::new().max_messages(10).visibility_timeout(SHORT))
        .await
        .expect("three");
    assert!(matches!(next(&mut events, "told"), Event::MailboxReceived { messages: 3, .. }));
    messages[0].ack().await.expect("an ack");
    assert!(matches!(next(&mut events, "told"), Event::MailboxAcked { messages: 1, .. }));

    messages[1].nack(Duration::ZERO).await.expect("a nack");
    let (mut nacked, mut dead) = (false, false);
    for _ in 0..2 {
        match next(&mut events, "told") {
            Event::MailboxNacked { messages: 1, .. } => nacked = true,
            Event::MailboxDeadLettered {
                message_id: message, reason: "deliveries", deliveries: 1, ..
            } => {
                dead = *message == messages[1].id.to_string();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(nacked && dead);

    tokio::time::advance(SHORT).await;
    assert_eq!(mailbox.count().await.expect("a count").dead, 2);
    assert!(matches!(next(&mut events, "told"), Event::MailboxLeaseLapsed { delivery: 1, .. }));
    assert!(matches!(next(&mut events, "told"), Event::MailboxDeadLettered { .. }));
}

#[tokio::test]
async fn a_duplicate_message_is_not_reported_as_sent() {
    let mailbox = MemoryMailbox::new("told once");
    let mut events = telemetry::subscribe();
    for _ in 0..2 {
        mailbox.send(b"a".to_vec(), SendOptions::new().dedup_key("k")).await.expect("it is sent");
    }
    mailbox.receive(ReceiveOptions::new()).await.expect("a message");
    assert!(matches!(next(&mut events, "told once"), Event::MailboxSent { messages: 1, .. }));
    assert!(matches!(next(&mut events, "told once"), Event::MailboxReceived { .. }));
}

#[tokio::test]
async fn a_set_of_mailboxes_keeps_one_mailbox_per_name() {
    let office = MemoryMailboxes::new();
    let policy = DeadLetterPolicy::new().max_deliveries(2);
    drop(office.mailbox_with("jobs", policy).expect("a mailbox"));
    office.mailbox("jobs").send(b"a".to_vec(), SendOptions::new()).await.expect("it is sent");
    let again = office.mailbox_with("jobs", DeadLetterPolicy::new()).expect("the same mailbox");
    assert_eq!(again.settings().await.expect("settings").max_deliveries, 2);
    assert_eq!(again.count().await.expect("a count").visible, 1);
    assert_eq!(office.mailbox("others").count().await.expect("a count").visible, 0);
}

#[tokio::test]
async fn mailboxes_of_different_sets_do_not_reach_each_other() {
    let (here, there) = (MemoryMailbox::new("here"), MemoryMailbox::new("there"));
    here.send(b"a".to_vec(), SendOptions::new().reply_to("there")).await.expect("it is sent");
    let message = here.receive(ReceiveOptions::new()).await.expect("a message").remove(0);
    message.reply(&1).await.expect("it waits in the post office of the request");
    assert_eq!(there.count().await.expect("a count").visible, 0);
    assert_eq!(here.mailboxes().mailbox("there").count().await.expect("a count").visible, 1);
}

#[tokio::test]
async fn two_mailboxes_can_reply_to_each_other_at_the_same_time() {
    let office = MemoryMailboxes::new();
    let (one, other) = (office.mailbox("one"), office.mailbox("other"));
    one.send(b"0".to_vec(), SendOptions::new().reply_to("other")).await.expect("it is sent");
    other.send(b"0".to_vec(), SendOptions::new().reply_to("one")).await.expect("it is sent");
    // Each reply carries the name of its sender, so that it is answered, too.
    let play = |mailbox: MemoryMailbox, name: &'static str| async move {
        for _ in 0..2000 {
            let wait = ReceiveOptions::new().wait(Duration::from_secs(20));
            let message = mailbox.receive(wait).await.expect("open").remove(0);
            let receipt = message.receipt.as_ref().expect("a receipt");
            mailbox
                .reply(receipt, b"1".to_vec(), SendOptions::new().reply_to(name))
                .await
                .expect("it is answered");
        }
    };
    // Each in a separate thread, so that they really meet.
    let partner = std::thread::spawn({
        let play = play(one.clone(), "one");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        move || runtime.block_on(play)
    });
    play(other.clone(), "other").await;
    partner.join().expect("no deadlock");
    let total = one.count().await.expect("a count").visible + other.count().await.expect("a count").visible;
    assert_eq!(total, 2);
}

#[tokio::test]
async fn a_waiting_receiver_that_is_dropped_leaves_its_message_to_others() {
    let mailbox = MemoryMailbox::new("dropped");
    let wait = ReceiveOptions::new().wait(Duration::from_secs(20));
    for _ in 0..100 {
        let (gone, stays) = (mailbox.receive(wait), mailbox.receive(wait));
        tokio::pin!(gone, stays);
        // Both wait.
        assert!(futures_util::poll!(gone.as_mut()).is_pending());
        assert!(futures_util::poll!(stays.as_mut()).is_pending());
        mailbox.send(b"a".to_vec(), SendOptions::new()).await.expect("it is sent");
        // The first was woken, and never receives.
        gone.set(mailbox.receive(ReceiveOptions::new().max_messages(0)));
        let got = tokio::time::timeout(Duration::from_secs(10), stays).await.expect("the other is woken");
        got.expect("a message")[0].ack().await.expect("an ack");
    }
}

#[tokio::test]
async fn a_dead_letter_reason_has_a_stable_kind() {
    for (reason, word) in [
        (DeadReason::Deliveries, "deliveries"),
        (DeadReason::Expired, "expired"),
        (DeadReason::Undecodable { error: String::new() }, "undecodable"),
        (DeadReason::Failed { error: String::new() }, "failed"),
    ] {
        assert_eq!(reason.kind(), word);
        assert_eq!(serde_json::to_value(&reason).expect("JSON")["kind"], word);
    }
}

#[test]
fn a_failed_message_is_retried_after_a_doubling_pause_or_buried() {
    let policy = DeadLetterPolicy::new().include("Poison").include("Odd").exclude("Odd");
    let seconds = Duration::from_secs;
    for (error, deliveries, expected) in [
        ("Busy", 1, AfterFailure::Again(seconds(1))),
        ("Busy", 2, AfterFailure::Again(seconds(2))),
        ("Busy", 3, AfterFailure::Again(seconds(4))),
        ("Busy", 4, AfterFailure::Bury),
        ("Poison", 1, AfterFailure::Bury),
        ("Odd", 1, AfterFailure::Again(seconds(1))),
        ("Odd", 4, AfterFailure::Bury),
    ] {
        assert_eq!(policy.after_failure(error, deliveries, 4, 0.0), expected, "{error} {deliveries}");
    }
    let backoff = policy.backoff;
    for deliveries in [0, 1, 2, 10, 33, u32::MAX] {
        let (longest, shortest) = (backoff.pause(deliveries, 0.0), backoff.pause(deliveries, 1.0));
        assert!(longest <= Duration::from_mins(5) && shortest >= longest.mul_f64(0.7499), "{deliveries}");
        assert!(backoff.pause(deliveries, f64::NAN) <= longest);
    }
    let mut endless = backoff;
    (endless.first, endless.longest) = (Duration::MAX, Duration::MAX);
    assert_eq!(endless.pause(3, 0.0), Duration::MAX);
}
