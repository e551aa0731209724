//! Checks of what holds messages back: earlier messages of their group, a rate, a pause.

use std::time::Duration;

use snakepit_mailbox::{DeadReason, Message, MessageState, NackOptions, SendOptions, SettingsChange};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_out_of_range, bodies};

fn of(group: &str) -> SendOptions {
    SendOptions::new().group(group)
}

async fn send_three(test: &TestMailbox<'_>) {
    for body in ["1", "2", "3"] {
        test.send_with(body, of("a")).await;
    }
}

async fn configure(test: &TestMailbox<'_>, change: SettingsChange) {
    test.mailbox.configure(change).await.expect("settings");
}

fn failed() -> DeadReason {
    DeadReason::Failed { error: "no".into() }
}

pub(super) async fn messages_of_a_group_come_one_at_a_time_and_in_order(test: TestMailbox<'_>) {
    send_three(&test).await;
    test.assert_count([1, 0, 2, 0]).await;
    for body in ["1", "2", "3"] {
        let message = test.receive_one(100).await;
        assert_eq!((&message.body[..], message.group.as_deref()), (body.as_bytes(), Some("a")));
        assert_eq!(test.receive(10, 100).await.len(), 0, "one at a time");
        message.ack().await.expect("an ack");
    }
    test.assert_count([0, 0, 0, 0]).await;
    test.send_with("4", of("a")).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["4"]);
}

pub(super) async fn other_groups_go_on(test: TestMailbox<'_>) {
    send_three(&test).await;
    test.send_with("b1", of("b")).await;
    test.send("alone").await;
    test.send_with("b2", of("b")).await;
    test.send("alone too").await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["1", "b1", "alone", "alone too"]);
    assert_eq!(test.receive(10, 100).await.len(), 0);
}

pub(super) async fn a_batch_takes_one_of_each_group(test: TestMailbox<'_>) {
    let messages = [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")];
    let messages = messages.map(|(body, group)| (body.into(), of(group)));
    test.mailbox.send_all(messages.to_vec()).await.expect("they are sent");
    let first = test.receive(10, 100).await;
    assert_eq!(bodies(&first), ["a1", "b1"]);
    let receipts: Vec<_> = first.iter().filter_map(|message| message.receipt.clone()).collect();
    assert_eq!(test.mailbox.ack_all(&receipts).await.expect("acks"), 2);
    assert_eq!(bodies(&test.receive(10, 100).await), ["a2", "b2"]);
}

/// Asserts that the first message of a group, whose lease ended without an ack, comes again before the others.
async fn first_comes_again(test: &TestMailbox<'_>, message: Message) {
    assert_eq!(&message.body[..], b"1");
    let again = test.receive_one(100).await;
    assert_eq!(&again.body[..], b"1", "it is still the first of its group");
    again.ack().await.expect("an ack");
    assert_eq!(&test.receive_one(100).await.body[..], b"2");
}

pub(super) async fn a_nack_keeps_its_group_waiting(test: TestMailbox<'_>) {
    send_three(&test).await;
    let message = test.receive_one(100).await;
    message.nack(NackOptions::new().visibility(test.units(4))).await.expect("a nack");
    assert_eq!(test.receive(10, 100).await.len(), 0, "those behind it wait, too");
    test.pass(5).await;
    first_comes_again(&test, message).await;
}

pub(super) async fn a_release_keeps_the_order_of_a_group(test: TestMailbox<'_>) {
    send_three(&test).await;
    let message = test.receive_one(100).await;
    message.release().await.expect("a release");
    first_comes_again(&test, message).await;
}

pub(super) async fn a_lapse_keeps_the_order_of_a_group(test: TestMailbox<'_>) {
    send_three(&test).await;
    let message = test.receive_one(2).await;
    test.pass(3).await;
    first_comes_again(&test, message).await;
}

pub(super) async fn a_dead_letter_lets_its_group_go_on(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    send_three(&test).await;
    test.receive_one(100).await.bury(failed()).await.expect("a bury");
    let second = test.receive_one(2).await;
    assert_eq!(&second.body[..], b"2");
    // The only delivery of the message lapses.
    test.pass(3).await;
    assert_eq!(&test.receive_one(100).await.body[..], b"3");
    test.assert_count([0, 1, 0, 2]).await;
}

pub(super) async fn a_message_behind_its_group_dies_of_age(test: TestMailbox<'_>) {
    test.send_with("first", SendOptions::new().group("g")).await;
    test.send_with("behind", SendOptions::new().group("g").time_to_live(test.units(2))).await;
    test.assert_count([1, 0, 1, 0]).await;
    test.pass(3).await;
    test.assert_count([1, 0, 0, 1]).await;
    assert_eq!(test.dead_letter().await.reason, DeadReason::Expired);
}

pub(super) async fn what_dies_of_age_lets_its_group_go_on(test: TestMailbox<'_>) {
    test.send_with("1", of("a").time_to_live(test.units(2))).await;
    test.send_with("2", of("a").time_to_live(test.units(2))).await;
    test.send_with("3", of("a")).await;
    test.pass(3).await;
    assert_eq!(&test.receive_one(100).await.body[..], b"3");
    test.assert_count([0, 1, 0, 2]).await;
}

pub(super) async fn looking_sees_who_follows_the_dying_first_of_a_group(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    // In one group, the first message and the next one expire. In the other group, the only delivery of the first
    // message lapses.
    test.send_with("1", of("lapsed")).await;
    let _held = test.receive_one(2).await;
    let next_of_lapsed = test.send_with("2", of("lapsed")).await;
    test.send_with("3", of("aged").time_to_live(test.units(2))).await;
    test.send_with("4", of("aged").time_to_live(test.units(2))).await;
    let next_of_aged = test.send_with("5", of("aged")).await;
    let last = test.send_with("6", of("aged")).await;
    test.assert_count([1, 1, 4, 0]).await;
    test.pass(3).await;
    // No operation has settled anything yet.
    test.assert_count([2, 0, 1, 3]).await;
    let seen = test.mailbox.peek(10).await.expect("a peek");
    let bodies: Vec<&[u8]> = seen.iter().map(|it| &it.body[..]).collect();
    assert_eq!(bodies, [b"2", b"5"]);
    for (id, state) in [
        (next_of_lapsed, MessageState::Visible),
        (next_of_aged, MessageState::Visible),
        (last, MessageState::Delayed),
    ] {
        assert_eq!(test.mailbox.find(id).await.expect("a look").expect("the message").state, state);
    }
}

pub(super) async fn what_is_redriven_goes_behind_its_group(test: TestMailbox<'_>) {
    send_three(&test).await;
    test.receive_one(100).await.bury(failed()).await.expect("a bury");
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    for body in ["2", "3", "1"] {
        let message = test.receive_one(100).await;
        assert_eq!(&message.body[..], body.as_bytes());
        message.ack().await.expect("an ack");
    }
}

pub(super) async fn an_ack_wakes_a_receiver_for_the_next_of_its_group(test: TestMailbox<'_>) {
    send_three(&test).await;
    let first = test.receive_one(100).await;
    let waiting = test.waiting(1).await;
    first.ack().await.expect("an ack");
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["2"]);
}

pub(super) async fn a_purge_forgets_groups(test: TestMailbox<'_>) {
    send_three(&test).await;
    assert_eq!(test.mailbox.purge().await.expect("a purge"), 3);
    test.send_with("4", of("a")).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["4"]);
}

pub(super) async fn the_order_of_a_group_outlives_its_process(mut test: TestMailbox<'_>) {
    send_three(&test).await;
    test.receive_one(100).await.ack().await.expect("an ack");
    test.reopen().await;
    test.send_with("4", of("a")).await;
    for body in ["2", "3", "4"] {
        let message = test.receive_one(100).await;
        assert_eq!(&message.body[..], body.as_bytes());
        message.ack().await.expect("an ack");
    }
}

pub(super) async fn a_group_has_a_name_and_no_delays(test: TestMailbox<'_>) {
    let send = |options: SendOptions| test.mailbox.send(b"a".to_vec(), options);
    assert_out_of_range(&send(of("")).await, "group");
    assert_out_of_range(&send(of(&"g".repeat(257))).await, "group");
    assert_out_of_range(&send(of("a").delay(test.units(1))).await, "delay");
    send(of(&"g".repeat(256))).await.expect("in range");
}

pub(super) async fn a_rate_holds_for_the_whole_mailbox(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().rate_limit(3, test.units(30))).await;
    for _ in 0..8 {
        test.send("a").await;
    }
    assert_eq!(test.receive(2, 100).await.len(), 2);
    assert_eq!(test.receive(10, 100).await.len(), 1);
    assert_eq!(test.receive(10, 100).await.len(), 0, "three in a period");
    test.assert_count([5, 3, 0, 0]).await;
    test.pass(31).await;
    assert_eq!(test.receive(10, 100).await.len(), 3, "another period");
    configure(&test, SettingsChange::new().no_rate_limit()).await;
    assert_eq!(test.receive(10, 100).await.len(), 2);
}

pub(super) async fn the_end_of_a_period_wakes_a_receiver(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().rate_limit(1, test.units(4))).await;
    test.send("1").await;
    test.send("2").await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["1"]);
    let waiting = test.waiting(1).await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["2"]);
}

pub(super) async fn a_rate_holds_for_each_group(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().group_rate_limit(2, test.units(30))).await;
    send_three(&test).await;
    test.send_with("b", of("b")).await;
    for body in ["1", "2"] {
        let message = test.receive(1, 100).await.remove(0);
        assert_eq!(&message.body[..], body.as_bytes());
        message.ack().await.expect("an ack");
    }
    assert_eq!(bodies(&test.receive(10, 100).await), ["b"], "only the first group has used up its rate");
    assert_eq!(test.receive(10, 100).await.len(), 0);
    test.pass(31).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["3"]);
}

fn counted_for(key: &str) -> SendOptions {
    SendOptions::new().rate_key(key)
}

/// Sends five messages of one rate key, which are limited to two in a period of 30 units, and two others.
async fn send_limited(test: &TestMailbox<'_>) {
    configure(test, SettingsChange::new().group_rate_limit(2, test.units(30))).await;
    for body in ["1", "2", "3", "4", "5"] {
        test.send_with(body, counted_for("a")).await;
    }
    test.send_with("b", counted_for("b")).await;
    test.send("alone").await;
}

pub(super) async fn a_rate_holds_for_each_key_and_other_keys_go_on(test: TestMailbox<'_>) {
    send_limited(&test).await;
    let first = test.receive(10, 100).await;
    assert_eq!(bodies(&first), ["1", "2", "b", "alone"], "messages of one key are received side by side");
    assert_eq!(first[0].rate_key.as_deref(), Some("a"));
    assert_eq!(test.receive(10, 100).await.len(), 0);
    test.assert_count([0, 4, 3, 0]).await;
    test.pass(31).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["3", "4"]);
    test.send_with("6", counted_for("a")).await;
    assert_eq!(test.receive(10, 100).await.len(), 0);
    test.pass(31).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["5", "6"]);
}

pub(super) async fn what_a_rate_delays_does_not_wait_longer_because_a_period_begins_late(
    test: TestMailbox<'_>,
) {
    configure(&test, SettingsChange::new().group_rate_limit(1, test.units(10))).await;
    for body in ["1", "2", "3", "4"] {
        test.send_with(body, counted_for("a")).await;
    }
    assert_eq!(bodies(&test.receive(10, 100).await), ["1"]);
    for body in ["2", "3", "4"] {
        // The receiver comes three units after the period could have begun.
        test.pass(13).await;
        assert_eq!(bodies(&test.receive(10, 100).await), [body]);
        assert_eq!(test.receive(10, 100).await.len(), 0);
    }
}

pub(super) async fn a_rate_key_counts_instead_of_the_group(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().group_rate_limit(1, test.units(30))).await;
    test.send_with("1", of("a").rate_key("shared")).await;
    test.send_with("2", of("b").rate_key("shared")).await;
    test.send_with("3", of("c")).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["1", "3"]);
    test.pass(31).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["2"]);
}

pub(super) async fn the_end_of_a_period_wakes_a_receiver_for_its_key(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().group_rate_limit(1, test.units(4))).await;
    test.send_with("1", counted_for("a")).await;
    test.send_with("2", counted_for("a")).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["1"]);
    let waiting = test.waiting(1).await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["2"]);
}

pub(super) async fn a_rate_of_keys_that_is_removed_lets_all_go_on(test: TestMailbox<'_>) {
    send_limited(&test).await;
    assert_eq!(test.receive(10, 100).await.len(), 4);
    let waiting = test.waiting(1).await;
    configure(&test, SettingsChange::new().no_group_rate_limit()).await;
    let mut rest = bodies(&test.woken(waiting).await.expect("a message"));
    rest.extend(bodies(&test.receive(10, 100).await));
    assert_eq!(rest, ["3", "4", "5"]);
}

pub(super) async fn the_rate_of_a_key_outlives_its_process(mut test: TestMailbox<'_>) {
    send_limited(&test).await;
    assert_eq!(test.receive(10, 100).await.len(), 4);
    test.reopen().await;
    assert_eq!(test.receive(10, 100).await.len(), 0);
    test.pass(31).await;
    let messages = test.receive(10, 100).await;
    assert_eq!(bodies(&messages), ["3", "4"]);
    assert_eq!(messages[0].rate_key.as_deref(), Some("a"));
}

pub(super) async fn what_is_redriven_keeps_its_rate_key(test: TestMailbox<'_>) {
    test.send_with("a", counted_for("a")).await;
    test.receive_one(100).await.bury(failed()).await.expect("a bury");
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    assert_eq!(test.receive_one(100).await.rate_key.as_deref(), Some("a"));
}

pub(super) async fn a_rate_key_has_a_name(test: TestMailbox<'_>) {
    let send = |options: SendOptions| test.mailbox.send(b"a".to_vec(), options);
    assert_out_of_range(&send(counted_for("")).await, "rate_key");
    assert_out_of_range(&send(counted_for(&"k".repeat(257))).await, "rate_key");
    // Unlike a group, a rate key has no order that a delay could hold up.
    send(counted_for(&"k".repeat(256)).delay(test.units(1))).await.expect("in range");
}

pub(super) async fn a_rate_is_more_than_nothing(test: TestMailbox<'_>) {
    for change in [
        SettingsChange::new().rate_limit(0, Duration::from_secs(1)),
        SettingsChange::new().rate_limit(1, Duration::ZERO),
        SettingsChange::new().rate_limit(1, Duration::MAX),
    ] {
        assert_out_of_range(&test.mailbox.configure(change).await, "rate_limit");
    }
}

pub(super) async fn a_paused_mailbox_takes_messages_and_gives_none(test: TestMailbox<'_>) {
    let held = test.send_and_receive("held", 100).await;
    configure(&test, SettingsChange::new().pause()).await;
    test.send("a").await;
    assert_eq!(test.receive(10, 100).await.len(), 0);
    held.ack().await.expect("what is under way can be finished");
    test.assert_count([1, 0, 0, 0]).await;
    assert!(test.mailbox.settings().await.expect("settings").paused);
    configure(&test, SettingsChange::new().resume()).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["a"]);
}

pub(super) async fn a_resume_wakes_a_receiver(test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().pause()).await;
    test.send("a").await;
    let waiting = test.waiting(1).await;
    configure(&test, SettingsChange::new().resume()).await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn a_pause_outlives_its_process(mut test: TestMailbox<'_>) {
    configure(&test, SettingsChange::new().pause()).await;
    test.send("a").await;
    test.reopen().await;
    assert_eq!(test.receive(10, 100).await.len(), 0);
    configure(&test, SettingsChange::new().resume()).await;
    assert_eq!(bodies(&test.receive(10, 100).await), ["a"]);
}

pub(super) async fn a_dedup_key_is_remembered_for_as_long_as_asked(test: TestMailbox<'_>) {
    let hour = Duration::from_hours(1);
    let keyed = |time: Duration| SendOptions::new().dedup_key("k").dedup_for(time);
    let first = test.send_with("a", keyed(hour * 24)).await;
    test.send_with("short", SendOptions::new().dedup_key("s").dedup_for(test.units(1))).await;
    test.fixture.pass(hour * 23).await;
    assert_eq!(test.send_with("b", keyed(hour)).await, first, "a day is not over");
    test.send_with("short again", SendOptions::new().dedup_key("s")).await;
    test.fixture.pass(hour * 2).await;
    assert_ne!(test.send_with("c", keyed(hour)).await, first);
    test.assert_count([4, 0, 0, 0]).await;
    assert_out_of_range(&test.mailbox.send(b"a".to_vec(), keyed(Duration::ZERO)).await, "dedup_for");
}
