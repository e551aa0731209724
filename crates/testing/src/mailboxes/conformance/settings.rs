//! Checks of the settings of a mailbox, which are the same for every client.

use snakepit_mailbox::{DeadLetterPolicy, DeadReason, NackOptions, SettingsChange};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_out_of_range};

impl<'a> TestMailbox<'a> {
    /// Opens the same mailbox as another client without a policy.
    async fn of_another(&self) -> TestMailbox<'a> {
        let opened = self.fixture.open(self.mailbox.name(), DeadLetterPolicy::new()).await;
        TestMailbox { fixture: self.fixture, mailbox: opened.expect("the mailbox again") }
    }

    async fn limit(&self) -> u32 {
        self.mailbox.settings().await.expect("settings").max_deliveries
    }

    async fn set_limit(&self, deliveries: u32) {
        let change = SettingsChange::new().max_deliveries(deliveries);
        let settings = self.mailbox.configure(change).await.expect("it is set");
        assert_eq!(settings.max_deliveries, deliveries);
    }

    /// Receives the only message, nacks it, and returns its delivery count.
    async fn fail(&self) -> u32 {
        let message = self.receive_one(50).await;
        message.nack(NackOptions::new().error("it failed")).await.expect("a nack");
        message.delivery_count
    }
}

pub(super) async fn a_message_is_delivered_five_times_unless_somebody_says_otherwise(test: TestMailbox<'_>) {
    assert_eq!(test.limit().await, 5);
    test.send("a").await;
    for delivery in 1..=5 {
        assert_eq!(test.fail().await, delivery);
    }
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_limit_holds_for_failures_and_crashes_alike(test: TestMailbox<'_>) {
    for limit in [1, 2, 4, 9] {
        let test = test.limited(limit).await;
        test.send("a").await;
        for delivery in 1..=limit {
            let message = test.receive_one(3).await;
            assert_eq!((message.delivery_count, message.max_deliveries), (delivery, limit));
            match (delivery + limit) % 2 {
                0 => test.pass(3).await,
                _ => message.nack(NackOptions::new()).await.expect("a nack"),
            }
        }
        test.assert_count([0, 0, 0, 1]).await;
        let letter = test.dead_letter().await;
        assert_eq!((letter.reason, letter.message.delivery_count), (DeadReason::Deliveries, limit));
    }
}

pub(super) async fn a_limit_that_one_sets_holds_for_all(one: TestMailbox<'_>) {
    let other = one.of_another().await;
    one.send("a").await;
    assert_eq!(other.fail().await, 1);
    one.set_limit(7).await;
    assert_eq!((other.limit().await, one.of_another().await.limit().await), (7, 7));
    for delivery in 2..=7 {
        one.assert_count([1, 0, 0, 0]).await;
        assert_eq!(other.fail().await, delivery);
    }
    one.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn whoever_opens_without_a_limit_keeps_the_one_that_is_set(test: TestMailbox<'_>) {
    let test = test.limited(3).await;
    assert_eq!(test.of_another().await.limit().await, 3);
    let opened = test.fixture.open(test.mailbox.name(), DeadLetterPolicy::new().max_deliveries(8)).await;
    assert_eq!(opened.expect("a mailbox").settings().await.expect("settings").max_deliveries, 8);
    assert_eq!(test.limit().await, 8);
}

pub(super) async fn a_limit_that_is_lowered_holds_for_what_is_there(test: TestMailbox<'_>) {
    test.send_each(["back", "delayed", "held", "new"]).await;
    for _ in 0..2 {
        let messages = test.receive(3, 50).await;
        for message in &messages {
            message.nack(NackOptions::new()).await.expect("a nack");
        }
    }
    let messages = test.receive(3, 50).await;
    messages[0].nack(NackOptions::new()).await.expect("a nack");
    messages[1].nack(test.units(50)).await.expect("a nack");
    test.set_limit(3).await;
    test.assert_count([1, 1, 0, 2]).await;
    for letter in test.dead_letters().await {
        assert_eq!((letter.reason, letter.message.delivery_count), (DeadReason::Deliveries, 3));
    }
    messages[2].ack().await.expect("what is held can be finished");
    assert_eq!(test.receive_one(50).await.delivery_count, 1);
}

pub(super) async fn a_limit_that_is_raised_holds_for_what_is_held(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    let message = test.send_and_receive("a", 50).await;
    test.set_limit(2).await;
    message.nack(NackOptions::new()).await.expect("a nack");
    test.assert_count([1, 0, 0, 0]).await;
    assert_eq!(test.fail().await, 2);
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn what_died_before_a_limit_is_raised_stays_dead(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    test.send_and_receive("a", 2).await;
    // No client reads the mailbox in between.
    test.pass(2).await;
    test.set_limit(9).await;
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn a_limit_is_at_least_one_delivery(test: TestMailbox<'_>) {
    let change = SettingsChange::new().max_deliveries(0);
    assert_out_of_range(&test.mailbox.configure(change).await, "max_deliveries");
    assert_eq!(test.limit().await, 5);
}

pub(super) async fn settings_outlive_their_process(test: TestMailbox<'_>) {
    let mut test = test.limited(11).await;
    test.reopen().await;
    assert_eq!(test.limit().await, 11);
}
