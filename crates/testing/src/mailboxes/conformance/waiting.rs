//! Checks that a waiting receive wakes as soon as there is a message for it.

use std::time::Duration;

use snakepit_mailbox::{DeadReason, LeaseExtension, MailboxError, ReceiveOptions, SendOptions};

use crate::mailboxes::test_mailbox::{TestMailbox, bodies};

pub(super) async fn a_wait_ends_after_its_time(test: TestMailbox<'_>) {
    let began = tokio::time::Instant::now();
    let options = ReceiveOptions::new().wait(test.units(3));
    assert_eq!(test.mailbox.receive(options).await.expect("nothing").len(), 0);
    assert!(began.elapsed() >= test.units(3), "{:?}", began.elapsed());
}

pub(super) async fn a_send_wakes_a_receiver(test: TestMailbox<'_>) {
    let waiting = test.waiting(1).await;
    test.send("a").await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn a_reply_wakes_a_receiver(questions: TestMailbox<'_>) {
    let answers = questions.another().await;
    questions.send_with("q", SendOptions::new().reply_to(answers.mailbox.name())).await;
    let waiting = answers.waiting(1).await;
    questions.receive_one(50).await.reply(&1).await.expect("it is answered");
    assert_eq!(bodies(&answers.woken(waiting).await.expect("a message")), ["1"]);
}

pub(super) async fn a_nack_wakes_a_receiver(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 100).await;
    let waiting = test.waiting(1).await;
    message.nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn a_release_wakes_a_receiver(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 100).await;
    let waiting = test.waiting(1).await;
    message.release().await.expect("a release");
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn a_redrive_wakes_a_receiver(test: TestMailbox<'_>) {
    test.send("a").await;
    test.receive_one(50).await.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    let waiting = test.waiting(1).await;
    test.mailbox.redrive(None).await.expect("a redrive");
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn the_end_of_a_delay_wakes_a_receiver(test: TestMailbox<'_>) {
    test.send_with("a", SendOptions::new().delay(test.units(4))).await;
    let waiting = test.waiting(1).await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn the_end_of_a_pause_wakes_a_receiver(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 100).await;
    let waiting = test.waiting(1).await;
    message.nack(test.units(2)).await.expect("a nack");
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["a"]);
}

pub(super) async fn a_lapse_wakes_a_receiver(test: TestMailbox<'_>) {
    test.send_and_receive("a", 4).await;
    let waiting = test.waiting(1).await;
    assert_eq!(test.woken(waiting).await.expect("a message")[0].delivery_count, 2);
}

pub(super) async fn a_lease_that_is_shortened_wakes_a_receiver(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 200).await;
    let waiting = test.waiting(1).await;
    let receipt = message.receipt.expect("a receipt");
    test.mailbox.extend(&receipt, test.units(1), LeaseExtension::Exactly).await.expect("it is shortened");
    assert_eq!(test.woken(waiting).await.expect("a message")[0].delivery_count, 2);
}

pub(super) async fn a_delay_that_begins_during_a_wait_wakes_in_time(test: TestMailbox<'_>) {
    test.send_with("later", SendOptions::new().delay(test.units(100))).await;
    let waiting = test.waiting(1).await;
    test.send_with("sooner", SendOptions::new().delay(test.units(2))).await;
    assert_eq!(bodies(&test.woken(waiting).await.expect("a message")), ["sooner"]);
}

pub(super) async fn a_close_wakes_all_receivers(test: TestMailbox<'_>) {
    let waiting = [test.waiting(1).await, test.waiting(10).await, test.waiting(1).await];
    test.mailbox.close();
    for task in waiting {
        let outcome = test.woken(task).await;
        assert!(matches!(outcome, Err(MailboxError::Closed(_))), "{outcome:?}");
    }
}

pub(super) async fn each_of_several_receivers_gets_one(test: TestMailbox<'_>) {
    let waiting = [test.waiting(1).await, test.waiting(1).await, test.waiting(1).await];
    let batch = ["a", "b", "c"].map(|body| (body.as_bytes().to_vec(), SendOptions::new()));
    test.mailbox.send_all(batch.into()).await.expect("they are sent");
    let mut received = Vec::new();
    for task in waiting {
        let messages = test.woken(task).await.expect("a message");
        assert_eq!(messages.len(), 1, "{messages:?}");
        received.extend(bodies(&messages));
    }
    received.sort();
    assert_eq!(received, ["a", "b", "c"]);
}

pub(super) async fn a_receiver_that_goes_away_takes_no_wake_up_along(test: TestMailbox<'_>) {
    let (gone, stays) = (test.waiting(1).await, test.waiting(1).await);
    // The send wakes the receiver, which ends before it can look.
    let sent = test.send("a");
    tokio::join!(sent, async { gone.abort() });
    let outcome = gone.await.map(|waited| waited.outcome);
    if let Ok(Ok(messages)) = &outcome
        && !messages.is_empty()
    {
        // The receiver was faster. The other one gets the next message.
        test.send("b").await;
    }
    assert_eq!(test.woken(stays).await.expect("a message").len(), 1);
}
