//! Answers: a message that names a mailbox is answered there, and with that it is done.

use snakepit::mailbox::{DeadLetterPolicy, MailboxError, Receive, Send};

use super::desk::{Desk, assert_expired, assert_out_of_range};
use super::{Held, Verdict};
use crate::mailbox::Fixture;
use crate::random;

pub(super) async fn a_reply_arrives_and_acknowledges(fixture: &dyn Fixture) -> Verdict {
    let (questions, answers) = (Desk::new(fixture).await, Desk::new(fixture).await);
    questions.send_with("6 * 7", Send::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(50).await;
    let id = question.reply(&42).await.expect("it is answered");
    let answer = answers.receive_one(50).await;
    assert_eq!((answer.id, answer.read::<i32>().expect("a number")), (id, 42));
    questions.assert_count([0, 0, 0, 0]).await;
    assert_expired(&question.reply(&43).await);
    answers.assert_count([0, 1, 0, 0]).await;
    Held
}

pub(super) async fn a_mailbox_can_reply_to_itself(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send_with("again", Send::new().reply_to(desk.mailbox.name())).await;
    desk.receive_one(50).await.reply("and again").await.expect("it is answered");
    assert_eq!(desk.receive_one(50).await.read::<String>().expect("a text"), "and again");
    desk.assert_count([0, 1, 0, 0]).await;
    Held
}

pub(super) async fn without_a_name_there_is_no_reply(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    desk.send("a").await;
    let message = desk.receive_one(50).await;
    let outcome = message.reply(&1).await;
    assert!(matches!(outcome, Err(MailboxError::NoReplyTo)), "{outcome:?}");
    message.ack().await.expect("it is still leased");
    Held
}

pub(super) async fn a_reply_to_a_mailbox_that_nobody_has_opened_waits_there(
    fixture: &dyn Fixture,
) -> Verdict {
    let desk = Desk::new(fixture).await;
    let name = random::word();
    desk.send_with("a", Send::new().reply_to(&name)).await;
    desk.receive_one(50).await.reply(&42).await.expect("it is answered");
    desk.assert_count([0, 0, 0, 0]).await;
    let answers = fixture.open(&name, DeadLetterPolicy::new()).await.expect("the mailbox of the replies");
    let received = answers.receive(Receive::new()).await.expect("it can be received");
    assert_eq!(received.len(), 1, "the reply waits");
    assert_eq!(received[0].read::<i32>().expect("a number"), 42);
    Held
}

pub(super) async fn a_reply_with_an_expired_receipt_sends_nothing(fixture: &dyn Fixture) -> Verdict {
    let (questions, answers) = (Desk::new(fixture).await, Desk::new(fixture).await);
    questions.send_with("a", Send::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(2).await;
    questions.pass(2).await;
    assert_expired(&question.reply(&1).await);
    answers.assert_count([0, 0, 0, 0]).await;
    assert_eq!(questions.receive_one(2).await.delivery_count, 2);
    Held
}

pub(super) async fn a_reply_out_of_range_leaves_the_message_leased(fixture: &dyn Fixture) -> Verdict {
    let (questions, answers) = (Desk::new(fixture).await, Desk::new(fixture).await);
    questions.send_with("a", Send::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(50).await;
    let receipt = question.receipt.clone().expect("a receipt");
    let options = Send::new().delay(std::time::Duration::from_hours(367 * 24));
    assert_out_of_range(&questions.mailbox.reply(&receipt, Vec::new(), options).await, "delay");
    answers.assert_count([0, 0, 0, 0]).await;
    question.ack().await.expect("it is still leased");
    Held
}
