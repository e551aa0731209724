//! Whoever waits is woken by what it waits for, and by nothing later than that.

use std::time::Duration;

use snakepit::mailbox::{DeadReason, Extension, MailboxError, Receive, Send};

use super::desk::{Desk, bodies};
use super::{Held, Verdict};
use crate::mailbox::Fixture;

pub(super) async fn a_wait_ends_after_its_time(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let began = tokio::time::Instant::now();
    let options = Receive::new().wait(desk.units(3));
    assert_eq!(desk.mailbox.receive(options).await.expect("nothing").len(), 0);
    assert!(began.elapsed() >= desk.units(3), "{:?}", began.elapsed());
    Held
}

pub(super) async fn a_send_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let waiting = desk.waiting(1).await;
    desk.send("a").await;
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn a_reply_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let (questions, answers) = (Desk::new(fixture).await, Desk::new(fixture).await);
    questions.send_with("q", Send::new().reply_to(answers.mailbox.name())).await;
    let waiting = answers.waiting(1).await;
    questions.receive_one(50).await.reply(&1).await.expect("it is answered");
    assert_eq!(bodies(&answers.woken(waiting).await.expect("a message")), ["1"]);
    Held
}

pub(super) async fn a_nack_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    let message = desk.receive_one(100).await;
    let waiting = desk.waiting(1).await;
    message.nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn a_release_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    let message = desk.receive_one(100).await;
    let waiting = desk.waiting(1).await;
    message.release().await.expect("a release");
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn a_redrive_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    desk.receive_one(50).await.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    let waiting = desk.waiting(1).await;
    desk.mailbox.redrive(None).await.expect("a redrive");
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn the_end_of_a_delay_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send_with("a", Send::new().delay(desk.units(4))).await;
    let waiting = desk.waiting(1).await;
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn the_end_of_a_pause_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    let message = desk.receive_one(100).await;
    let waiting = desk.waiting(1).await;
    message.nack(desk.units(2)).await.expect("a nack");
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["a"]);
    Held
}

pub(super) async fn a_lapse_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    desk.receive_one(4).await;
    let waiting = desk.waiting(1).await;
    assert_eq!(desk.woken(waiting).await.expect("a message")[0].delivery_count, 2);
    Held
}

pub(super) async fn a_lease_that_is_shortened_wakes_a_receiver(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    let message = desk.receive_one(200).await;
    let waiting = desk.waiting(1).await;
    let receipt = message.receipt.expect("a receipt");
    desk.mailbox.extend(&receipt, desk.units(1), Extension::Exactly).await.expect("it is shortened");
    assert_eq!(desk.woken(waiting).await.expect("a message")[0].delivery_count, 2);
    Held
}

pub(super) async fn a_delay_that_begins_during_a_wait_wakes_in_time(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send_with("later", Send::new().delay(desk.units(100))).await;
    let waiting = desk.waiting(1).await;
    desk.send_with("sooner", Send::new().delay(desk.units(2))).await;
    assert_eq!(bodies(&desk.woken(waiting).await.expect("a message")), ["sooner"]);
    Held
}

pub(super) async fn a_close_wakes_all_receivers(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let waiting = [desk.waiting(1).await, desk.waiting(10).await, desk.waiting(1).await];
    desk.mailbox.close();
    for task in waiting {
        let outcome = desk.woken(task).await;
        assert!(matches!(outcome, Err(MailboxError::Closed(_))), "{outcome:?}");
    }
    Held
}

pub(super) async fn each_of_several_receivers_gets_one(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let waiting = [desk.waiting(1).await, desk.waiting(1).await, desk.waiting(1).await];
    let batch = ["a", "b", "c"].map(|body| (body.as_bytes().to_vec(), Send::new()));
    desk.mailbox.send_all(batch.into()).await.expect("they are sent");
    let mut received = Vec::new();
    for task in waiting {
        let messages = desk.woken(task).await.expect("a message");
        assert_eq!(messages.len(), 1, "{messages:?}");
        received.extend(bodies(&messages));
    }
    received.sort();
    assert_eq!(received, ["a", "b", "c"]);
    Held
}

pub(super) async fn a_receiver_that_goes_away_takes_no_wake_up_along(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    let (gone, stays) = (desk.waiting(1).await, desk.waiting(1).await);
    // It is woken, and goes away before it could look.
    let sent = desk.send("a");
    tokio::join!(sent, async { gone.abort() });
    let outcome = gone.await.map(|waited| waited.outcome);
    if let Ok(Ok(messages)) = &outcome
        && !messages.is_empty()
    {
        // It was faster; then the other one gets the next.
        desk.send("b").await;
    }
    assert_eq!(desk.woken(stays).await.expect("a message").len(), 1);
    Held
}
