//! Checks of the order of deliveries.

use std::time::Duration;

use snakepit_mailbox::{DeadReason, SendOptions};

use crate::mailboxes::test_mailbox::{TestMailbox, bodies};

pub(super) async fn first_deliveries_come_in_the_order_of_their_sends(test: TestMailbox<'_>) {
    for number in 0..25 {
        test.send(&number.to_string()).await;
    }
    let mut received = Vec::new();
    for most in [1, 7, 10, 10] {
        received.extend(bodies(&test.receive(most, 50).await));
    }
    assert_eq!(received, (0..25).map(|number| number.to_string()).collect::<Vec<_>>());
}

pub(super) async fn higher_priorities_come_first(test: TestMailbox<'_>) {
    for (body, priority) in [("low", -5), ("a", 0), ("high", 7), ("b", 0), ("higher", 100)] {
        test.send_with(body, SendOptions::new().priority(priority)).await;
    }
    assert_eq!(bodies(&test.receive(10, 50).await), ["higher", "high", "a", "b", "low"]);
}

pub(super) async fn what_comes_back_keeps_its_place(test: TestMailbox<'_>) {
    test.send_each(["a", "b", "c"]).await;
    let messages = test.receive(2, 2).await;
    messages[0].nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(bodies(&test.mailbox.peek(10).await.expect("a look")), ["a", "c"]);
    test.pass(2).await;
    assert_eq!(bodies(&test.receive(10, 50).await), ["a", "b", "c"]);
}

pub(super) async fn what_was_delayed_takes_its_place_by_its_send(test: TestMailbox<'_>) {
    test.send_with("first", SendOptions::new().delay(test.units(2))).await;
    test.send("second").await;
    assert_eq!(bodies(&test.mailbox.peek(10).await.expect("a look")), ["second"]);
    test.pass(2).await;
    assert_eq!(bodies(&test.receive(10, 50).await), ["first", "second"]);
}

pub(super) async fn what_is_redriven_comes_last(test: TestMailbox<'_>) {
    test.send_each(["dead", "alive"]).await;
    let dead = test.receive(1, 50).await.remove(0);
    dead.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    test.mailbox.redrive(None).await.expect("a redrive");
    assert_eq!(bodies(&test.receive(10, 50).await), ["alive", "dead"]);
}
