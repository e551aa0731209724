//! Checks of what a message remembers of its deliveries, and that reading it changes nothing.

use std::time::Duration;

use snakepit_mailbox::{Attempt, AttemptEnd, DeadReason, MessageId, MessageState, NackOptions, SendOptions};

use crate::mailboxes::test_mailbox::TestMailbox;

/// Returns the parts of an attempt that do not depend on the machine.
fn told(attempts: &[Attempt]) -> Vec<(u32, AttemptEnd, Option<&str>)> {
    attempts.iter().map(|attempt| (attempt.delivery, attempt.end, attempt.error.as_deref())).collect()
}

pub(super) async fn each_attempt_is_remembered(test: TestMailbox<'_>) {
    test.send("a").await;
    assert_eq!(test.mailbox.peek(1).await.expect("a look")[0].attempts, []);
    let first = test.receive_one(50).await;
    assert_eq!(first.attempts, []);
    test.pass(2).await;
    first.nack(NackOptions::new().error("KeyError: x")).await.expect("a nack");
    test.receive_one(3).await;
    test.pass(4).await;
    test.receive_one(50).await.release().await.expect("a release");
    let third = test.receive_one(50).await;
    let expected = [(1, AttemptEnd::Nack, Some("KeyError: x")), (2, AttemptEnd::Lapse, None)];
    assert_eq!(told(&third.attempts), expected);
    assert_eq!(third.last_error(), Some("KeyError: x"));
    for attempt in &third.attempts {
        assert!(attempt.holder.ends_with(&format!("/{}", std::process::id())), "{attempt:?}");
        assert!(attempt.took >= test.units(2) && attempt.took < test.units(4), "{attempt:?}");
    }
    third.bury(DeadReason::Failed { error: "no use".into() }).await.expect("it is buried");
    let letter = test.dead_letter().await;
    assert_eq!(told(&letter.message.attempts)[2], (3, AttemptEnd::Bury, Some("no use")));
}

pub(super) async fn the_last_error_stays_with_what_is_given_up(test: TestMailbox<'_>) {
    let test = test.limited(2).await;
    test.send("nacked").await;
    for delivery in 1..=2 {
        let options = NackOptions::new().error(format!("failure {delivery}"));
        test.receive_one(50).await.nack(options).await.expect("a nack");
    }
    let letter = test.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Deliveries, Some("failure 2")));
    test.mailbox.purge_dead_letters().await.expect("a purge");

    test.send("crashed").await;
    test.receive_one(50).await.nack(NackOptions::new().error("failure 1")).await.expect("a nack");
    test.receive_one(2).await;
    test.pass(2).await;
    // This also holds for a reader that comes before the dead letter has been moved.
    let letter = test.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Deliveries, Some("failure 1")));
    assert_eq!(letter.message.attempts.len(), 2, "the crash is one, too");
    test.mailbox.purge_dead_letters().await.expect("a purge");

    test.send_with("too old", SendOptions::new().time_to_live(test.units(3))).await;
    test.receive_one(50).await.nack(NackOptions::new().error("failure 1")).await.expect("a nack");
    test.pass(3).await;
    let letter = test.dead_letter().await;
    assert_eq!((letter.reason, letter.message.last_error()), (DeadReason::Expired, Some("failure 1")));
}

pub(super) async fn attempts_and_their_errors_are_bounded(test: TestMailbox<'_>) {
    let test = test.limited(1000).await;
    test.send("a").await;
    for delivery in 1..=40 {
        let message = test.receive_one(50).await;
        let error = format!("{delivery} {}", "é".repeat(5000));
        message.nack(NackOptions::new().error(error)).await.expect("a nack");
    }
    let message = test.receive_one(50).await;
    let numbers: Vec<u32> = message.attempts.iter().map(|attempt| attempt.delivery).collect();
    assert_eq!(numbers, (25..=40).collect::<Vec<u32>>());
    for attempt in &message.attempts {
        let error = attempt.error.as_deref().expect("an error");
        assert!(error.len() <= 2048 && error.starts_with(&attempt.delivery.to_string()), "{}", error.len());
    }
}

pub(super) async fn an_error_outlasts_many_crashes(test: TestMailbox<'_>) {
    let test = test.limited(30).await;
    test.send("a").await;
    test.receive_one(50).await.nack(NackOptions::new().error("the only word")).await.expect("a nack");
    for _ in 0..25 {
        test.receive_one(0).await;
    }
    let message = test.receive_one(50).await;
    assert_eq!((message.delivery_count, message.last_error()), (27, Some("the only word")));
    assert_eq!((message.attempts.len(), message.attempts[1].delivery), (17, 11));
}

pub(super) async fn a_redrive_keeps_what_is_remembered(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    test.send("a").await;
    for round in 1..=2 {
        let message = test.receive_one(50).await;
        assert_eq!((message.delivery_count, message.attempts.len()), (1, round - 1));
        message.nack(NackOptions::new().error(format!("round {round}"))).await.expect("a nack");
        assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    }
    let seen = &test.mailbox.peek(1).await.expect("a look")[0];
    let expected = [(1, AttemptEnd::Nack, Some("round 1")), (1, AttemptEnd::Nack, Some("round 2"))];
    assert_eq!(told(&seen.attempts), expected);
}

pub(super) async fn a_new_message_remembers_nothing_of_those_before_it(test: TestMailbox<'_>) {
    let test = test.limited(2).await;
    for round in 0..3 {
        test.send("a").await;
        test.receive_one(50).await.nack(NackOptions::new().error("an error")).await.expect("a nack");
        let message = test.receive_one(50).await;
        assert_eq!(message.attempts.len(), 1);
        match round {
            0 => message.ack().await.expect("an ack"),
            1 => drop(test.mailbox.purge().await.expect("a purge")),
            _ => {
                message.nack(NackOptions::new()).await.expect("a nack");
                test.mailbox.purge_dead_letters().await.expect("a purge");
            }
        }
    }
    test.send("b").await;
    assert_eq!(test.receive_one(50).await.attempts, []);
}

impl TestMailbox<'_> {
    async fn place(&self, id: MessageId) -> Option<MessageState> {
        self.mailbox.find(id).await.expect("a search").map(|found| {
            assert_eq!((found.message.id, found.message.receipt), (id, None));
            found.state
        })
    }
}

pub(super) async fn a_message_is_found_by_its_id_wherever_it_is(test: TestMailbox<'_>) {
    let test = test.limited(1).await;
    let id = test.send_with("a", SendOptions::new().delay(test.units(3))).await;
    let exhausted = Some(MessageState::Dead { reason: DeadReason::Deliveries });
    assert_eq!(test.place(id).await, Some(MessageState::Delayed));
    test.pass(3).await;
    assert_eq!(test.place(id).await, Some(MessageState::Visible));
    let message = test.receive_one(3).await;
    let holder = format!("/{}", std::process::id());
    let place = test.place(id).await;
    assert!(
        matches!(&place, Some(MessageState::InFlight { holder: it }) if it.ends_with(&holder)),
        "{place:?}"
    );
    test.pass(3).await;
    assert_eq!(test.place(id).await, exhausted);
    test.assert_count([0, 0, 0, 1]).await;
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    let again = test.receive_one(50).await;
    again.nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(test.place(id).await, exhausted);
    test.mailbox.purge_dead_letters().await.expect("a purge");
    assert_eq!(test.place(id).await, None);
    let other = test.another().await;
    let elsewhere = other.send("b").await;
    assert_eq!((test.place(elsewhere).await, test.place(message.id).await), (None, None));
}

pub(super) async fn looking_changes_nothing(test: TestMailbox<'_>) {
    let test = test.limited(9).await;
    let id = test.send("a").await;
    for delivery in 1..=9 {
        for _ in 0..3 {
            test.assert_count([1, 0, 0, 0]).await;
            let seen = test.mailbox.peek(10).await.expect("a look");
            assert_eq!((seen.len(), seen[0].delivery_count), (1, delivery - 1));
            assert_eq!(test.dead_letters().await.len(), 0);
            assert_eq!(test.place(id).await, Some(MessageState::Visible));
        }
        assert_eq!(test.receive_one(2).await.delivery_count, delivery);
        test.pass(2).await;
    }
    for _ in 0..3 {
        test.assert_count([0, 0, 0, 1]).await;
        assert_eq!(test.dead_letter().await.message.attempts.len(), 9);
        assert_eq!(test.mailbox.peek(10).await.expect("a look").len(), 0);
    }
}
