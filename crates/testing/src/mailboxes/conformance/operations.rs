//! Checks of each operation in the simplest case.

use std::time::Duration;

use snakepit_mailbox::{
    BootClock, Clock, DeadReason, LeaseExtension, NackOptions, Receipt, ReceiveOptions, SendOptions,
};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, assert_out_of_range, bodies};

pub(super) async fn a_message_is_received_as_it_was_sent(test: TestMailbox<'_>) {
    let before = BootClock.wall() - Duration::from_secs(2);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let options = SendOptions::new().reply_to("answers").priority(3).attribute("color", "blue").trace(trace);
    let id = test.send_with("hello", options).await;
    let message = test.receive_one(10).await;
    assert_eq!((message.id, &message.body[..]), (id, &b"hello"[..]));
    assert_eq!((message.delivery_count, message.priority), (1, 3));
    assert_eq!(message.reply_to.as_deref(), Some("answers"));
    assert_eq!(message.attributes.get("color").map(String::as_str), Some("blue"));
    assert_eq!(message.attributes.len(), 1);
    assert_eq!(message.trace.as_deref(), Some(trace));
    assert_eq!(message.mailbox.name(), test.mailbox.name());
    let after = BootClock.wall() + Duration::from_secs(2);
    assert!((before..after).contains(&message.enqueued_at), "{:?}", message.enqueued_at);
}

pub(super) async fn a_body_can_be_any_bytes(test: TestMailbox<'_>) {
    let sent = [Vec::new(), vec![0], (0..=255).collect(), vec![0xff; 1 << 20]];
    for body in sent.clone() {
        test.mailbox.send(body, SendOptions::new()).await.expect("it is sent");
    }
    let received = test.receive(10, 10).await;
    assert!(received.iter().map(|message| &message.body[..]).eq(sent.iter().map(|body| &body[..])));
}

pub(super) async fn an_empty_mailbox_gives_nothing_at_once(test: TestMailbox<'_>) {
    assert_eq!(test.receive(10, 10).await.len(), 0);
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn ids_are_never_the_same(test: TestMailbox<'_>) {
    let mut ids = std::collections::HashSet::new();
    for _ in 0..50 {
        assert!(ids.insert(test.send("the same").await));
    }
    let batch = (0..50).map(|_| (b"the same".to_vec(), SendOptions::new())).collect();
    for id in test.mailbox.send_all(batch).await.expect("they are sent") {
        assert!(ids.insert(id));
    }
    assert_eq!(test.mailbox.purge().await.expect("a purge"), 100);
    assert!(ids.insert(test.send("the same").await));
}

pub(super) async fn several_are_sent_in_one_step_and_in_order(test: TestMailbox<'_>) {
    let batch = ["a", "b", "c"].map(|body| (body.as_bytes().to_vec(), SendOptions::new()));
    let ids = test.mailbox.send_all(batch.into()).await.expect("they are sent");
    let received = test.receive(10, 10).await;
    assert!(received.iter().map(|message| message.id).eq(ids));
    assert_eq!(bodies(&received), ["a", "b", "c"]);
    assert!(test.mailbox.send_all(Vec::new()).await.expect("nothing to send").is_empty());
}

pub(super) async fn several_are_sent_or_none(test: TestMailbox<'_>) {
    let bad = SendOptions::new().delay(Duration::from_hours(367 * 24));
    let batch = vec![(b"a".to_vec(), SendOptions::new()), (b"b".to_vec(), bad)];
    assert_out_of_range(&test.mailbox.send_all(batch).await, "delay");
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn a_receive_takes_no_more_than_it_asked_for(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c", "d"]).await;
    assert_eq!(bodies(&test.receive(3, 10).await), ["a", "b", "c"]);
    test.assert_count([1, 3, 0, 0]).await;
}

pub(super) async fn acks_of_several_leave_out_what_expired(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    let messages = test.receive(10, 10).await;
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    messages[1].ack().await.expect("an ack");
    assert_eq!(test.mailbox.ack_all(&receipts).await.expect("acks"), 2);
    assert_eq!(test.mailbox.ack_all(&receipts).await.expect("acks"), 0);
    assert_eq!(test.mailbox.ack_all(&[]).await.expect("acks"), 0);
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn nacks_of_several_leave_out_what_expired(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    let messages = test.receive(10, 10).await;
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    messages[0].ack().await.expect("an ack");
    assert_eq!(test.mailbox.nack_all(&receipts, NackOptions::new()).await.expect("nacks"), 2);
    assert_eq!(bodies(&test.receive(10, 10).await), ["b", "c"]);
    assert_eq!(test.mailbox.nack_all(&receipts, NackOptions::new()).await.expect("nacks"), 0);
}

pub(super) async fn releases_of_several_leave_out_what_expired(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    let messages = test.receive(10, 10).await;
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    messages[0].ack().await.expect("an ack");
    assert_eq!(test.mailbox.release(&receipts).await.expect("releases"), 2);
    assert_eq!(test.mailbox.release(&receipts).await.expect("releases"), 0);
    assert_eq!(bodies(&test.receive(10, 10).await), ["b", "c"]);
    assert_eq!(test.mailbox.release(&receipts).await.expect("releases"), 0);
}

pub(super) async fn an_extended_lease_lasts_longer(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 4).await;
    message.extend(test.units(20)).await.expect("it is extended");
    test.pass(5).await;
    assert_eq!(test.receive(10, 10).await.len(), 0);
    message.ack().await.expect("the lease holds");
}

pub(super) async fn an_extended_lease_ends_too(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 10).await;
    message.extend(test.units(12)).await.expect("it is extended");
    test.pass(12).await;
    assert_expired(&message.ack().await);
    assert_eq!(test.receive_one(10).await.delivery_count, 2);
}

pub(super) async fn an_extension_never_shortens_a_lease(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 20).await;
    message.extend(test.units(1)).await.expect("it is extended");
    test.pass(2).await;
    message.ack().await.expect("the lease holds");
}

pub(super) async fn an_exact_extension_may_shorten_a_lease(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 30).await;
    let receipt = message.receipt.clone().expect("a receipt");
    test.mailbox.extend(&receipt, test.units(2), LeaseExtension::Exactly).await.expect("it is shortened");
    test.pass(2).await;
    assert_expired(&message.ack().await);
    let again = test.receive_one(30).await;
    let receipt = again.receipt.clone().expect("a receipt");
    test.mailbox.extend(&receipt, Duration::ZERO, LeaseExtension::Exactly).await.expect("it is ended");
    assert_eq!(test.receive_one(30).await.delivery_count, 3);
}

pub(super) async fn peek_shows_what_comes_next_and_leases_nothing(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    test.send_with("later", SendOptions::new().delay(test.units(50))).await;
    let leased = test.receive(1, 50).await;
    let seen = test.mailbox.peek(10).await.expect("a look");
    assert_eq!(bodies(&seen), ["b", "c"]);
    assert!(seen.iter().all(|message| message.receipt.is_none() && message.delivery_count == 0), "{seen:?}");
    assert_expired(&seen[0].ack().await);
    assert_eq!(bodies(&test.mailbox.peek(1).await.expect("a look")), ["b"]);
    leased[0].nack(Duration::ZERO).await.expect("a nack");
    let seen = test.mailbox.peek(10).await.expect("a look");
    assert_eq!(bodies(&seen), ["a", "b", "c"]);
    assert_eq!(seen[0].delivery_count, 1);
    test.assert_count([3, 0, 1, 0]).await;
}

pub(super) async fn a_purge_removes_all_but_the_dead(test: TestMailbox<'_>) {
    test.send_each(["dead", "leased", "visible"]).await;
    test.send_with("delayed", SendOptions::new().delay(test.units(3))).await;
    let messages = test.receive(2, 50).await;
    messages[0].bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    assert_eq!(test.mailbox.purge().await.expect("a purge"), 3);
    test.assert_count([0, 0, 0, 1]).await;
    assert_expired(&messages[1].ack().await);
    test.send("new").await;
    test.pass(4).await;
    assert_eq!(bodies(&test.receive(10, 10).await), ["new"]);
}

pub(super) async fn dead_letters_are_listed_by_their_age(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    let messages = test.receive(10, 50).await;
    for index in [1, 2, 0] {
        let reason = DeadReason::Failed { error: format!("number {index}") };
        messages[index].bury(reason).await.expect("it is buried");
    }
    let letters = test.dead_letters().await;
    let listed: Vec<_> = letters.iter().map(|letter| letter.message.clone()).collect();
    assert_eq!(bodies(&listed), ["b", "c", "a"]);
    assert_eq!(letters[0].reason, DeadReason::Failed { error: "number 1".into() });
    assert!(listed.iter().all(|message| message.receipt.is_none() && message.delivery_count == 1));
    assert_eq!(test.mailbox.dead_letters(2).await.expect("a list").len(), 2);
    assert_eq!(test.mailbox.purge_dead_letters().await.expect("a purge"), 3);
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn redrive_puts_back_the_chosen_ones(test: TestMailbox<'_>) {
    let (first, second) = (test.send("a").await, test.send("b").await);
    for message in test.receive(10, 50).await {
        message.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    }
    let alive = test.send("alive").await;
    assert_eq!(test.mailbox.redrive(Some(&[second, alive])).await.expect("a redrive"), 1);
    test.assert_count([2, 0, 0, 1]).await;
    assert_eq!(bodies(&test.receive(10, 50).await), ["alive", "b"]);
    assert_eq!(test.dead_letter().await.message.id, first);
    assert_eq!(test.mailbox.redrive(Some(&[])).await.expect("a redrive"), 0);
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    assert_eq!(test.receive_one(50).await.id, first);
}

pub(super) async fn a_receipt_can_be_carried_as_a_text(test: TestMailbox<'_>) {
    let receipt = test.send_and_receive("a", 50).await.receipt.expect("a receipt");
    let carried = Receipt::from(receipt.to_string().as_str());
    assert_eq!(carried, receipt);
    test.mailbox.ack(&carried).await.expect("an ack");
}

pub(super) async fn a_healthy_mailbox_says_so(test: TestMailbox<'_>) {
    test.mailbox.health().await.expect("it works");
    assert!(!test.mailbox.is_closed());
    assert_eq!(test.mailbox.receive(ReceiveOptions::new()).await.expect("it works").len(), 0);
}
