//! What a message remembers of its deliveries, and that whoever looks changes nothing.

use std::time::Duration;

use snakepit::mailbox::{Attempt, AttemptEnd, DeadReason, MessageId, Nack, Place, Send};

use super::desk::Desk;
use super::{Held, Verdict};
use crate::mailbox::Fixture;

/// The parts of an attempt that do not depend on the machine.
fn told(attempts: &[Attempt]) -> Vec<(u32, AttemptEnd, Option<&str>)> {
    attempts.iter().map(|attempt| (attempt.delivery, attempt.end, attempt.error.as_deref())).collect()
}

pub(super) async fn each_attempt_is_remembered(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    assert_eq!(desk.mailbox.peek(1).await.expect("a look")[0].attempts, []);
    let first = desk.receive_one(50).await;
    assert_eq!(first.attempts, []);
    desk.pass(2).await;
    first.nack(Nack::new().error("KeyError: x")).await.expect("a nack");
    desk.receive_one(3).await;
    desk.pass(4).await;
    desk.receive_one(50).await.release().await.expect("a release");
    let third = desk.receive_one(50).await;
    let expected = [(1, AttemptEnd::Nack, Some("KeyError: x")), (2, AttemptEnd::Lapse, None)];
    assert_eq!(told(&third.attempts), expected);
    assert_eq!(third.last_error(), Some("KeyError: x"));
    for attempt in &third.attempts {
        assert!(attempt.holder.ends_with(&format!("/{}", std::process::id())), "{attempt:?}");
        assert!(attempt.took >= desk.units(2) && attempt.took < desk.units(4), "{attempt:?}");
    }
    third.bury(DeadReason::Failed { error: "no use".into() }).await.expect("it is buried");
    let letter = desk.dead_letter().await;
    assert_eq!(told(&letter.message.attempts)[2], (3, AttemptEnd::Bury, Some("no use")));
    Held
}

pub(super) async fn the_last_error_stays_with_what_is_given_up(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 2).await;
    desk.send("nacked").await;
    for delivery in 1..=2 {
        let options = Nack::new().error(format!("failure {delivery}"));
        desk.receive_one(50).await.nack(options).await.expect("a nack");
    }
    let letter = desk.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Deliveries, Some("failure 2")));
    desk.mailbox.purge_dead_letters().await.expect("a purge");

    desk.send("crashed").await;
    desk.receive_one(50).await.nack(Nack::new().error("failure 1")).await.expect("a nack");
    desk.receive_one(2).await;
    desk.pass(2).await;
    // Also for whoever looks before the dead letter is moved.
    let letter = desk.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Deliveries, Some("failure 1")));
    assert_eq!(letter.message.attempts.len(), 2, "the crash is one, too");
    desk.mailbox.purge_dead_letters().await.expect("a purge");

    desk.send_with("too old", Send::new().time_to_live(desk.units(3))).await;
    desk.receive_one(50).await.nack(Nack::new().error("failure 1")).await.expect("a nack");
    desk.pass(3).await;
    let letter = desk.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Expired, Some("failure 1")));
    Held
}

pub(super) async fn attempts_and_their_errors_are_bounded(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 1000).await;
    desk.send("a").await;
    for delivery in 1..=40 {
        let message = desk.receive_one(50).await;
        let error = format!("{delivery} {}", "é".repeat(5000));
        message.nack(Nack::new().error(error)).await.expect("a nack");
    }
    let message = desk.receive_one(50).await;
    let numbers: Vec<u32> = message.attempts.iter().map(|attempt| attempt.delivery).collect();
    assert_eq!(numbers, (25..=40).collect::<Vec<u32>>());
    for attempt in &message.attempts {
        let error = attempt.error.as_deref().expect("an error");
        assert!(error.len() <= 2048 && error.starts_with(&attempt.delivery.to_string()), "{}", error.len());
    }
    Held
}

pub(super) async fn an_error_outlasts_many_crashes(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 30).await;
    desk.send("a").await;
    desk.receive_one(50).await.nack(Nack::new().error("the only word")).await.expect("a nack");
    for _ in 0..25 {
        desk.receive_one(0).await;
    }
    let message = desk.receive_one(50).await;
    assert_eq!((message.delivery_count, message.last_error()), (27, Some("the only word")));
    assert_eq!((message.attempts.len(), message.attempts[1].delivery), (17, 11));
    Held
}

pub(super) async fn a_redrive_keeps_what_is_remembered(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 1).await;
    desk.send("a").await;
    for round in 1..=2 {
        let message = desk.receive_one(50).await;
        assert_eq!((message.delivery_count, message.attempts.len()), (1, round - 1));
        message.nack(Nack::new().error(format!("round {round}"))).await.expect("a nack");
        assert_eq!(desk.mailbox.redrive(None).await.expect("a redrive"), 1);
    }
    let seen = &desk.mailbox.peek(1).await.expect("a look")[0];
    let expected = [(1, AttemptEnd::Nack, Some("round 1")), (1, AttemptEnd::Nack, Some("round 2"))];
    assert_eq!(told(&seen.attempts), expected);
    Held
}

pub(super) async fn a_new_message_remembers_nothing_of_those_before_it(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 2).await;
    for round in 0..3 {
        desk.send("a").await;
        desk.receive_one(50).await.nack(Nack::new().error("an error")).await.expect("a nack");
        let message = desk.receive_one(50).await;
        assert_eq!(message.attempts.len(), 1);
        match round {
            0 => message.ack().await.expect("an ack"),
            1 => drop(desk.mailbox.purge().await.expect("a purge")),
            _ => {
                message.nack(Nack::new()).await.expect("a nack");
                desk.mailbox.purge_dead_letters().await.expect("a purge");
            }
        }
    }
    desk.send("b").await;
    assert_eq!(desk.receive_one(50).await.attempts, []);
    Held
}

impl Desk<'_> {
    async fn place(&self, id: MessageId) -> Option<Place> {
        self.mailbox.find(id).await.expect("a search").map(|found| {
            assert_eq!((found.message.id, found.message.receipt), (id, None));
            found.place
        })
    }
}

pub(super) async fn a_message_is_found_by_its_id_wherever_it_is(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 1).await;
    let id = desk.send_with("a", Send::new().delay(desk.units(3))).await;
    let exhausted = Some(Place::Dead { reason: DeadReason::Deliveries });
    assert_eq!(desk.place(id).await, Some(Place::Delayed));
    desk.pass(3).await;
    assert_eq!(desk.place(id).await, Some(Place::Visible));
    let message = desk.receive_one(3).await;
    let holder = format!("/{}", std::process::id());
    let place = desk.place(id).await;
    assert!(matches!(&place, Some(Place::InFlight { holder: it }) if it.ends_with(&holder)), "{place:?}");
    desk.pass(3).await;
    assert_eq!(desk.place(id).await, exhausted);
    desk.assert_count([0, 0, 0, 1]).await;
    assert_eq!(desk.mailbox.redrive(None).await.expect("a redrive"), 1);
    let again = desk.receive_one(50).await;
    again.nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(desk.place(id).await, exhausted);
    desk.mailbox.purge_dead_letters().await.expect("a purge");
    assert_eq!(desk.place(id).await, None);
    let other = Desk::new(fixture).await;
    let elsewhere = other.send("b").await;
    assert_eq!((desk.place(elsewhere).await, desk.place(message.id).await), (None, None));
    Held
}

pub(super) async fn looking_changes_nothing(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::limited(fixture, 9).await;
    let id = desk.send("a").await;
    for delivery in 1..=9 {
        for _ in 0..3 {
            desk.assert_count([1, 0, 0, 0]).await;
            let seen = desk.mailbox.peek(10).await.expect("a look");
            assert_eq!((seen.len(), seen[0].delivery_count), (1, delivery - 1));
            assert_eq!(desk.dead_letters().await.len(), 0);
            assert_eq!(desk.place(id).await, Some(Place::Visible));
        }
        assert_eq!(desk.receive_one(2).await.delivery_count, delivery);
        desk.pass(2).await;
    }
    for _ in 0..3 {
        desk.assert_count([0, 0, 0, 1]).await;
        assert_eq!(desk.dead_letter().await.message.attempts.len(), 9);
        assert_eq!(desk.mailbox.peek(10).await.expect("a look").len(), 0);
    }
    Held
}
