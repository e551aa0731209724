//! Checks of every transition of the state diagram: the states of a message, and what moves it from one to the next.

use std::time::Duration;

use snakepit_mailbox::{DeadReason, SendOptions};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, bodies};

pub(super) async fn a_send_makes_it_visible(test: TestMailbox<'_>) {
    test.send("a").await;
    test.assert_count([1, 0, 0, 0]).await;
}

pub(super) async fn a_send_with_a_delay_makes_it_visible_later(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().delay(test.units(4))).await;
    test.assert_count([0, 0, 1, 0]).await;
    assert_eq!(test.receive(10, 10).await.len(), 0);
    test.pass(4).await;
    test.assert_count([1, 0, 0, 0]).await;
    assert_eq!(test.receive_one(10).await.delivery_count, 1);
}

pub(super) async fn a_receive_leases_it(test: TestMailbox<'_>) {
    test.send_and_receive("a", 10).await;
    test.assert_count([0, 1, 0, 0]).await;
    assert_eq!(test.receive(10, 10).await.len(), 0);
}

pub(super) async fn an_ack_ends_it(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 2).await;
    message.ack().await.expect("an ack");
    test.assert_count([0, 0, 0, 0]).await;
    test.pass(3).await;
    test.assert_count([0, 0, 0, 0]).await;
    assert_expired(&message.ack().await);
}

pub(super) async fn a_nack_makes_it_visible(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 10).await;
    message.nack(Duration::ZERO).await.expect("a nack");
    test.assert_count([1, 0, 0, 0]).await;
    assert_expired(&message.ack().await);
    let again = test.receive_one(10).await;
    assert_eq!((again.id, again.delivery_count), (message.id, 2));
}

pub(super) async fn a_nack_with_a_pause_makes_it_visible_later(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 10).await;
    message.nack(test.units(4)).await.expect("a nack");
    test.assert_count([0, 0, 1, 0]).await;
    assert_expired(&message.ack().await);
    assert_eq!(test.receive(10, 10).await.len(), 0);
    test.pass(4).await;
    test.assert_count([1, 0, 0, 0]).await;
    assert_eq!(test.receive_one(10).await.delivery_count, 2);
}

pub(super) async fn a_release_makes_it_visible_as_if_it_had_not_been_delivered(test: TestMailbox<'_>) {
    let id = test.send("a").await;
    for _ in 0..20 {
        let message = test.receive_one(10).await;
        assert_eq!((message.id, message.delivery_count), (id, 1));
        message.release().await.expect("a release");
        test.assert_count([1, 0, 0, 0]).await;
        assert_expired(&message.ack().await);
        assert_expired(&message.release().await);
    }
    assert_eq!(test.mailbox.peek(1).await.expect("a look")[0].delivery_count, 0);
}

pub(super) async fn a_release_of_its_last_delivery_does_not_make_it_dead(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    test.send_and_receive("a", 50).await.release().await.expect("a release");
    test.assert_count([1, 0, 0, 0]).await;
    let last = test.receive_one(50).await;
    assert_eq!(last.delivery_count, 1);
    last.nack(Duration::ZERO).await.expect("a nack");
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_release_of_what_was_begun_before_counts_that(test: TestMailbox<'_>) {
    let test = test.limited(3).await;
    test.send_and_receive("a", 50).await.nack(Duration::ZERO).await.expect("a nack");
    test.receive_one(3).await;
    test.pass(3).await;
    for _ in 0..5 {
        let message = test.receive_one(50).await;
        assert_eq!(message.delivery_count, 3);
        message.release().await.expect("a release");
    }
    test.assert_count([1, 0, 0, 0]).await;
}

pub(super) async fn a_lapsed_lease_makes_it_visible(test: TestMailbox<'_>) {
    let id = test.send("a").await;
    test.receive_one(3).await;
    test.pass(3).await;
    test.assert_count([1, 0, 0, 0]).await;
    let again = test.receive_one(10).await;
    assert_eq!((again.id, again.delivery_count), (id, 2));
}

pub(super) async fn a_lease_of_no_time_lapses_at_once(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 0).await;
    assert_expired(&message.ack().await);
    assert_eq!(test.receive_one(10).await.delivery_count, 2);
}

pub(super) async fn a_bury_makes_it_dead(test: TestMailbox<'_>) {
    let id = test.send("a").await;
    let message = test.receive_one(2).await;
    let reason = DeadReason::Failed { error: "no use".into() };
    message.bury(reason.clone()).await.expect("it is buried");
    test.assert_count([0, 0, 0, 1]).await;
    let letter = test.dead_letter().await;
    assert_eq!((letter.message.id, &letter.message.body[..]), (id, &b"a"[..]));
    assert_eq!((letter.reason, letter.message.delivery_count), (reason, 1));
    test.pass(3).await;
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_nack_of_its_last_delivery_makes_it_dead(test: TestMailbox<'_>) {
    let test = test.limited(2).await;
    test.send_and_receive("a", 50).await.nack(Duration::ZERO).await.expect("a nack");
    let last = test.receive_one(50).await;
    // The pause has no effect, because this was the last delivery.
    last.nack(test.units(50)).await.expect("a nack");
    test.assert_count([0, 0, 0, 1]).await;
    let letter = test.dead_letter().await;
    assert_eq!((letter.reason, letter.message.delivery_count), (DeadReason::Deliveries, 2));
    assert_expired(&last.ack().await);
}

pub(super) async fn a_lapse_of_its_last_lease_makes_it_dead(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    let last = test.send_and_receive("a", 3).await;
    test.assert_count([0, 1, 0, 0]).await;
    test.pass(3).await;
    test.assert_count([0, 0, 0, 1]).await;
    assert_eq!(test.dead_letter().await.reason, DeadReason::Deliveries);
    assert_expired(&last.ack().await);
    assert_eq!(test.receive(10, 3).await.len(), 0);
}

pub(super) async fn its_last_delivery_can_be_acknowledged(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    test.send_and_receive("a", 50).await.ack().await.expect("an ack");
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn the_end_of_its_time_to_live_makes_it_dead(test: TestMailbox<'_>) {
    let id = test.send_with("a", SendOptions::new().time_to_live(test.units(4))).await;
    test.assert_count([1, 0, 0, 0]).await;
    test.pass(4).await;
    assert_eq!(test.receive(10, 10).await.len(), 0);
    test.assert_count([0, 0, 0, 1]).await;
    let letter = test.dead_letter().await;
    assert_eq!(
        (letter.message.id, letter.reason, letter.message.delivery_count),
        (id, DeadReason::Expired, 0)
    );
}

pub(super) async fn the_end_of_its_time_to_live_ends_a_delay(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().time_to_live(test.units(2)).delay(test.units(50))).await;
    test.pass(2).await;
    test.assert_count([0, 0, 0, 1]).await;
    assert_eq!(test.dead_letter().await.reason, DeadReason::Expired);
}

pub(super) async fn a_message_that_is_held_outlives_its_time(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().time_to_live(test.units(4))).await;
    let message = test.receive_one(50).await;
    test.pass(5).await;
    test.assert_count([0, 1, 0, 0]).await;
    message.ack().await.expect("it is still leased");
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn a_message_that_is_released_too_late_is_the_latest_dead_letter(test: TestMailbox<'_>) {
    test.send_with("held", SendOptions::new().time_to_live(test.units(2))).await;
    let held = test.receive_one(50).await;
    test.send_with("waiting", SendOptions::new().time_to_live(test.units(4))).await;
    test.pass(6).await;
    let receipt = held.receipt.clone().expect("a receipt");
    assert_eq!(test.mailbox.release(&[receipt]).await.expect("a release"), 1);
    let dead: Vec<_> = test.dead_letters().await.into_iter().map(|letter| letter.message).collect();
    assert_eq!(bodies(&dead), ["waiting", "held"]);
}

pub(super) async fn a_message_that_comes_back_too_late_is_dead(test: TestMailbox<'_>) {
    let options = SendOptions::new().time_to_live(test.units(4));
    test.send_with("given back", options.clone()).await;
    test.send_with("lapsed", options).await;
    let messages = test.receive(10, 6).await;
    test.pass(5).await;
    messages[0].nack(Duration::ZERO).await.expect("a nack");
    test.assert_count([0, 1, 0, 1]).await;
    test.pass(2).await;
    test.assert_count([0, 0, 0, 2]).await;
    assert!(test.dead_letters().await.iter().all(|letter| letter.reason == DeadReason::Expired));
}

pub(super) async fn a_redrive_makes_it_new(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    let id = test.send_with("a", SendOptions::new().time_to_live(test.units(50))).await;
    let before = test.receive_one(50).await;
    before.nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    test.assert_count([1, 0, 0, 0]).await;
    let again = test.receive_one(50).await;
    assert_eq!((again.id, again.delivery_count, &again.body[..]), (id, 1, &b"a"[..]));
    assert_ne!(again.receipt, before.receipt);
    assert_expired(&before.ack().await);
    again.nack(Duration::ZERO).await.expect("a nack");
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_redrive_lets_it_live_for_its_time_again(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().time_to_live(test.units(4))).await;
    test.pass(4).await;
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    test.assert_count([1, 0, 0, 0]).await;
    test.pass(4).await;
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_dedup_key_is_taken_once(test: TestMailbox<'_>) {
    let keyed = SendOptions::new().dedup_key("order 7");
    let first = test.send_with("a", keyed.clone()).await;
    assert_eq!(test.send_with("b", keyed.clone()).await, first);
    let other = test.send_with("c", SendOptions::new().dedup_key("order 8")).await;
    assert_ne!(other, first);
    test.assert_count([2, 0, 0, 0]).await;
    for message in test.receive(10, 50).await {
        message.ack().await.expect("an ack");
    }
    assert_eq!(test.send_with("d", keyed.clone()).await, first);
    assert_eq!(test.mailbox.purge().await.expect("a purge"), 0);
    let batch = vec![(b"e".to_vec(), keyed), (b"f".to_vec(), SendOptions::new().dedup_key("order 8"))];
    assert_eq!(test.mailbox.send_all(batch).await.expect("they are known"), [first, other]);
    test.assert_count([0, 0, 0, 0]).await;
}

pub(super) async fn a_dedup_key_counts_within_a_batch(test: TestMailbox<'_>) {
    let batch = vec![
        (b"a".to_vec(), SendOptions::new().dedup_key("k")),
        (b"b".to_vec(), SendOptions::new().dedup_key("k")),
    ];
    let ids = test.mailbox.send_all(batch).await.expect("they are sent");
    assert_eq!(ids[0], ids[1]);
    assert_eq!(&test.receive_one(10).await.body[..], b"a");
}

pub(super) async fn a_dedup_key_is_forgotten_after_five_minutes(test: TestMailbox<'_>) {
    let window = Duration::from_mins(5);
    let first = test.send_with("a", SendOptions::new().dedup_key("k")).await;
    test.fixture.pass(window.checked_sub(test.units(1)).expect("less than the window")).await;
    assert_eq!(test.send_with("b", SendOptions::new().dedup_key("k")).await, first);
    test.pass(1).await;
    assert_ne!(test.send_with("c", SendOptions::new().dedup_key("k")).await, first);
    test.assert_count([2, 0, 0, 0]).await;
}
