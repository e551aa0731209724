//! What a mailbox keeps about itself: one owner of each rule, the same for everybody.

use std::sync::Arc;

use snakepit::mailbox::{DeadLetterPolicy, DeadReason, Mailbox, Nack, SettingsChange};

use super::desk::{Desk, assert_out_of_range};
use super::{Held, Verdict, needs};
use crate::mailbox::Fixture;

impl<'a> Desk<'a> {
    /// The same mailbox as somebody else has it who opens it without rules.
    async fn of_another(&self) -> Desk<'a> {
        let opened = self.fixture.open(self.mailbox.name(), DeadLetterPolicy::new()).await;
        Desk { fixture: self.fixture, mailbox: opened.expect("the mailbox again") }
    }

    async fn limit(&self) -> u32 {
        self.mailbox.settings().await.expect("settings").max_deliveries
    }

    async fn set_limit(&self, deliveries: u32) {
        let change = SettingsChange::new().max_deliveries(deliveries);
        let settings = self.mailbox.configure(change).await.expect("it is set");
        assert_eq!(settings.max_deliveries, deliveries);
    }

    /// Receives the one message, gives it back, and says which delivery it was.
    async fn fail(&self) -> u32 {
        let message = self.receive_one(50).await;
        message.nack(Nack::new().error("it failed")).await.expect("a nack");
        message.delivery_count
    }
}

pub(super) async fn a_message_is_delivered_five_times_unless_somebody_says_otherwise(
    fixture: &dyn Fixture,
) -> Verdict {
    let desk = Desk::new(fixture).await;
    assert_eq!(desk.limit().await, 5);
    desk.send("a").await;
    for delivery in 1..=5 {
        assert_eq!(desk.fail().await, delivery);
    }
    desk.assert_count([0, 0, 0, 1]).await;
    Held
}

pub(super) async fn a_limit_holds_for_failures_and_crashes_alike(fixture: &dyn Fixture) -> Verdict {
    for limit in [1, 2, 4, 9] {
        let desk = Desk::limited(fixture, limit).await;
        desk.send("a").await;
        for delivery in 1..=limit {
            let message = desk.receive_one(3).await;
            assert_eq!((message.delivery_count, message.max_deliveries), (delivery, limit));
            match (delivery + limit) % 2 {
                0 => desk.pass(3).await,
                _ => message.nack(Nack::new()).await.expect("a nack"),
            }
        }
        desk.assert_count([0, 0, 0, 1]).await;
        let letter = desk.dead_letter().await;
        assert_eq!((letter.reason, letter.message.delivery_count), (DeadReason::Deliveries, limit));
    }
    Held
}

pub(super) async fn a_limit_that_one_sets_holds_for_all(fixture: &dyn Fixture) -> Verdict {
    let one = Desk::new(fixture).await;
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
    Held
}

pub(super) async fn whoever_opens_without_a_limit_keeps_the_one_that_is_set(
    fixture: &dyn Fixture,
) -> Verdict {
    let desk = Desk::limited(fixture, 3).await;
    assert_eq!(desk.of_another().await.limit().await, 3);
    let opened = fixture.open(desk.mailbox.name(), DeadLetterPolicy::new().max_deliveries(8)).await;
    assert_eq!(opened.expect("a mailbox").settings().await.expect("settings").max_deliveries, 8);
    assert_eq!(desk.limit().await, 8);
    Held
}

pub(super) async fn a_limit_that_is_lowered_holds_for_what_is_there(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    for body in ["back", "delayed", "held", "new"] {
        desk.send(body).await;
    }
    for _ in 0..2 {
        let messages = desk.receive(3, 50).await;
        for message in &messages {
            message.nack(Nack::new()).await.expect("a nack");
        }
    }
    let messages = desk.receive(3, 50).await;
    messages[0].nack(Nack::new()).await.expect("a nack");
    messages[1].nack(desk.units(50)).await.expect("a nack");
    desk.set_limit(3).await;
    desk.assert_count([1, 1, 0, 2]).await;
    for letter in desk.dead_letters().await {
        assert_eq!((letter.reason, letter.message.delivery_count), (DeadReason::Deliveries, 3));
    }
    messages[2].ack().await.expect("what is held can be finished");
    assert_eq!(desk.receive_one(50).await.delivery_count, 1);
    Held
}

pub(super) async fn a_limit_that_is_raised_holds_for_what_is_held(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 1).await;
    desk.send("a").await;
    let message = desk.receive_one(50).await;
    desk.set_limit(2).await;
    message.nack(Nack::new()).await.expect("a nack");
    desk.assert_count([1, 0, 0, 0]).await;
    assert_eq!(desk.fail().await, 2);
    desk.assert_count([0, 0, 0, 1]).await;
    Held
}

pub(super) async fn what_died_before_a_limit_is_raised_stays_dead(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 1).await;
    desk.send("a").await;
    desk.receive_one(2).await;
    // Nobody looks at it in between.
    desk.pass(2).await;
    desk.set_limit(9).await;
    desk.assert_count([0, 0, 0, 1]).await;
    Held
}

pub(super) async fn a_limit_is_at_least_one_delivery(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let change = SettingsChange::new().max_deliveries(0);
    assert_out_of_range(&desk.mailbox.configure(change).await, "max_deliveries");
    assert_eq!(desk.limit().await, 5);
    Held
}

pub(super) async fn settings_outlive_their_process(fixture: &dyn Fixture) -> Verdict {
    let mut desk = Desk::limited(fixture, 11).await;
    needs!(desk, outlives_process);
    let before: Arc<dyn Mailbox> = Arc::clone(&desk.mailbox);
    desk.mailbox = fixture.reopen(before.as_ref()).await;
    assert_eq!(desk.limit().await, 11);
    Held
}
