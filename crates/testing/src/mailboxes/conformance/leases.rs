//! Checks of receipts: what they belong to, how long they work, and that they do nothing afterwards. The checks `m1` to
//! `m6` cover known mistakes of other mailboxes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use snakepit_mailbox::{
    DeadReason, LeaseExtension, MailboxError, Message, NackOptions, Receipt, ReceiveOptions, SendOptions,
    TypedMailbox,
};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, bodies};

/// Tries every operation that takes a receipt. All of them must be refused and change nothing.
async fn assert_good_for_nothing(test: &TestMailbox<'_>, message: &Message) {
    let receipt = message.receipt.clone().expect("a receipt");
    let mailbox = &test.mailbox;
    let before = test.count().await;
    assert_expired(&mailbox.ack(&receipt).await);
    assert_expired(&mailbox.nack(&receipt, NackOptions::new()).await);
    assert_expired(&mailbox.extend(&receipt, test.units(50), LeaseExtension::AtLeast).await);
    assert_expired(&mailbox.extend(&receipt, test.units(50), LeaseExtension::Exactly).await);
    assert_expired(&mailbox.bury(&receipt, DeadReason::Failed { error: "no".into() }).await);
    assert_expired(&mailbox.reply(&receipt, Vec::new(), SendOptions::new()).await);
    let several = std::slice::from_ref(&receipt);
    assert_eq!(mailbox.ack_all(several).await.expect("acks"), 0);
    assert_eq!(mailbox.nack_all(several, NackOptions::new()).await.expect("nacks"), 0);
    assert_eq!(mailbox.release(several).await.expect("releases"), 0);
    assert_eq!(test.count().await, before, "an expired receipt has changed something");
}

pub(super) async fn m1_a_lapsed_receipt_is_refused_although_nobody_has_looked(test: TestMailbox<'_>) {
    for attempt in 0..7 {
        let test = test.another().await;
        test.send_with("a", SendOptions::new().reply_to(test.mailbox.name())).await;
        let message = test.receive_one(1).await;
        let receipt = message.receipt.clone().expect("a receipt");
        test.pass(1).await;
        // In each attempt, another operation of the late client is the first to touch the mailbox after the lapse.
        match attempt {
            0 => assert_expired(&message.ack().await),
            1 => assert_expired(&message.nack(Duration::ZERO).await),
            2 => assert_expired(&message.extend(test.units(50)).await),
            3 => assert_expired(&message.bury(DeadReason::Expired).await),
            4 => assert_expired(&message.reply("late").await),
            5 => assert_expired(&message.release().await),
            _ => assert_eq!(test.mailbox.ack_all(&[receipt]).await.expect("acks"), 0),
        }
        test.assert_count([1, 0, 0, 0]).await;
    }
}

pub(super) async fn m2_a_receive_never_waits_to_fill_its_batch(test: TestMailbox<'_>) {
    test.send("a").await;
    test.send("b").await;
    let began = tokio::time::Instant::now();
    let options = ReceiveOptions::new().max_messages(10).wait(test.long_wait());
    let messages = test.mailbox.receive(options).await.expect("it can be received");
    assert_eq!(bodies(&messages), ["a", "b"]);
    assert!(began.elapsed() < test.long_wait() / 2, "it waited for more");
    let waiting = test.waiting(10).await;
    test.send("c").await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["c"]);
}

pub(super) async fn m3_a_closed_mailbox_takes_and_gives_nothing(test: TestMailbox<'_>) {
    test.send("before").await;
    test.mailbox.close();
    assert!(test.mailbox.is_closed());
    let name = test.mailbox.name().to_owned();
    let is_closed =
        |error: Option<MailboxError>| matches!(error, Some(MailboxError::Closed(of)) if of == name);
    assert!(is_closed(test.mailbox.send(b"after".to_vec(), SendOptions::new()).await.err()));
    assert!(is_closed(test.mailbox.send_all(vec![(b"after".to_vec(), SendOptions::new())]).await.err()));
    assert!(is_closed(test.mailbox.receive(ReceiveOptions::new()).await.err()));
    assert!(is_closed(test.mailbox.receive(ReceiveOptions::new().wait(test.long_wait())).await.err()));
    test.mailbox.close();
    test.assert_count([1, 0, 0, 0]).await;
}

pub(super) async fn what_is_under_way_can_be_finished_after_a_close(test: TestMailbox<'_>) {
    let answers = test.another().await;
    for body in ["ack", "nack", "extend", "bury", "reply"] {
        test.send_with(body, SendOptions::new().reply_to(answers.mailbox.name())).await;
    }
    let messages = test.receive(10, 50).await;
    test.mailbox.close();
    messages[0].ack().await.expect("an ack");
    messages[1].nack(Duration::ZERO).await.expect("a nack");
    messages[2].extend(test.units(60)).await.expect("it is extended");
    messages[3].bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    messages[4].reply("done").await.expect("it is answered");
    test.assert_count([1, 1, 0, 1]).await;
    answers.assert_count([1, 0, 0, 0]).await;
}

pub(super) async fn a_reply_to_a_closed_mailbox_leaves_the_message_leased(test: TestMailbox<'_>) {
    let answers = test.another().await;
    test.send_with("a", SendOptions::new().reply_to(answers.mailbox.name())).await;
    let message = test.receive_one(50).await;
    answers.mailbox.close();
    if let Err(error) = message.reply("too late").await {
        assert!(matches!(error, MailboxError::Closed(_)), "{error:?}");
        message.ack().await.expect("it is still leased");
    } else {
        // Closing a shared mailbox closes it for one process only.
        assert!(test.mailbox.capabilities().shared.reason_against().is_none(), "it was closed for all");
    }
}

pub(super) async fn m4_a_body_that_cannot_be_read_harms_no_neighbour(test: TestMailbox<'_>) {
    let numbers: TypedMailbox<u32> = TypedMailbox::over(Arc::clone(&test.mailbox));
    numbers.send(&1, SendOptions::new()).await.expect("it is sent");
    test.send("no number").await;
    test.mailbox.send(vec![0xff, 0xfe], SendOptions::new()).await.expect("it is sent");
    numbers.send(&2, SendOptions::new()).await.expect("it is sent");
    let options = ReceiveOptions::new().max_messages(10).visibility_timeout(test.units(50));
    let received = numbers.receive(options).await.expect("it can be received");
    assert!(received.iter().map(|message| message.value).eq([1, 2]));
    received[0].ack().await.expect("an ack");
    assert_eq!(&received[1].body[..], b"2");
    test.assert_count([0, 1, 0, 2]).await;
    for letter in test.dead_letters().await {
        assert!(
            matches!(&letter.reason, DeadReason::Undecodable { error } if !error.is_empty()),
            "{letter:?}"
        );
    }
    assert_eq!(&test.dead_letters().await[0].message.body[..], b"no number");
}

pub(super) async fn m4_a_mailbox_that_nobody_touches_keeps_its_messages(test: TestMailbox<'_>) {
    let days = Duration::from_hours(24 * 8);
    test.send("dead").await;
    test.receive_one(1).await.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    test.send("alive").await;
    test.fixture.pass(days).await;
    test.assert_count([1, 0, 0, 1]).await;
    assert_eq!(bodies(&test.receive(10, 10).await), ["alive"]);
}

pub(super) async fn a_typed_receive_goes_on_behind_what_cannot_be_read(test: TestMailbox<'_>) {
    let numbers: TypedMailbox<u32> = TypedMailbox::over(Arc::clone(&test.mailbox));
    for _ in 0..3 {
        test.send("no number").await;
    }
    numbers.send(&7, SendOptions::new()).await.expect("it is sent");
    let one = numbers.receive(ReceiveOptions::new()).await.expect("it can be received");
    assert!(one.iter().map(|message| message.value).eq([7]));
    test.assert_count([0, 1, 0, 3]).await;
    test.send("no number").await;
    assert_eq!(numbers.receive(ReceiveOptions::new()).await.expect("it can be received").len(), 0);
}

pub(super) async fn m5_a_message_that_kills_its_receivers_ends_as_a_dead_letter(test: TestMailbox<'_>) {
    let test = test.limited(3).await;
    let poison = test.send("poison").await;
    for delivery in 1..=3 {
        // The consumer crashes: it neither acks nor nacks.
        let message = test.receive_one(1).await;
        assert_eq!((message.id, message.delivery_count), (poison, delivery));
        drop(message);
        test.pass(1).await;
    }
    test.send("innocent").await;
    assert_eq!(bodies(&test.receive(10, 50).await), ["innocent"]);
    let letter = test.dead_letter().await;
    assert_eq!((letter.message.id, letter.reason), (poison, DeadReason::Deliveries));
    assert_eq!(letter.message.delivery_count, 3);
}

pub(super) async fn m6_a_message_is_moved_to_the_dead_letters_not_copied(test: TestMailbox<'_>) {
    let test = test.limited(2).await;
    let buried = test.send("buried").await;
    let message = test.receive_one(1).await;
    message.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    // Repeating any of the operations changes nothing.
    assert_good_for_nothing(&test, &message).await;
    test.pass(1).await;
    assert_eq!(test.receive(10, 1).await.len(), 0);
    assert_eq!(test.dead_letter().await.message.id, buried);
    test.mailbox.purge_dead_letters().await.expect("a purge");

    let exhausted = test.send("exhausted").await;
    let first = test.receive_one(50).await;
    first.nack(Duration::ZERO).await.expect("a nack");
    let last = test.receive_one(50).await;
    last.nack(Duration::ZERO).await.expect("a nack");
    assert_good_for_nothing(&test, &first).await;
    assert_good_for_nothing(&test, &last).await;
    assert_eq!(test.dead_letter().await.message.id, exhausted);
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn an_older_receipt_is_good_for_nothing(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().reply_to(test.mailbox.name())).await;
    let lapsed = test.receive_one(1).await;
    test.pass(1).await;
    let given_back = test.receive_one(50).await;
    assert_good_for_nothing(&test, &lapsed).await;
    given_back.nack(Duration::ZERO).await.expect("a nack");
    let latest = test.receive_one(50).await;
    assert_good_for_nothing(&test, &lapsed).await;
    assert_good_for_nothing(&test, &given_back).await;
    latest.ack().await.expect("the latest receipt holds");
    assert_good_for_nothing(&test, &latest).await;
}

pub(super) async fn a_receipt_is_never_given_out_twice(test: TestMailbox<'_>) {
    let test = test.limited(100).await;
    let mut seen = HashSet::new();
    for round in 0..10 {
        test.send("a").await;
        test.send("b").await;
        for message in test.receive(10, 50).await {
            let receipt = message.receipt.clone().expect("a receipt");
            assert!(seen.insert(receipt.clone()), "{receipt} was given out before");
            match round % 5 {
                0 => message.ack().await.expect("an ack"),
                1 => message.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried"),
                _ => message.nack(Duration::ZERO).await.expect("a nack"),
            }
        }
        match round {
            4 => drop(test.mailbox.purge().await.expect("a purge")),
            7 => drop(test.mailbox.redrive(None).await.expect("a redrive")),
            _ => {}
        }
    }
}

pub(super) async fn a_receipt_of_another_mailbox_is_good_for_nothing(one: TestMailbox<'_>) {
    let other = one.another().await;
    one.send("a").await;
    other.send("b").await;
    let (message, foreign) = (one.receive_one(50).await, other.receive_one(50).await);
    assert_good_for_nothing(&one, &foreign).await;
    assert_good_for_nothing(&other, &message).await;
    message.ack().await.expect("an ack");
    foreign.ack().await.expect("an ack");
}

pub(super) async fn a_receipt_that_was_made_up_is_good_for_nothing(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 50).await;
    let real = message.receipt.clone().expect("a receipt").to_string();
    let texts =
        ["", ".", "0.0", "1.1", "nonsense", "18446744073709551615.18446744073709551615", "-1.-1", "'; --"];
    for text in
        texts.into_iter().map(str::to_owned).chain([format!("{real}0"), format!("1{real}"), real + " "])
    {
        assert_expired(&test.mailbox.ack(&Receipt::from(text.as_str())).await);
    }
    message.ack().await.expect("the real one holds");
}
