//! Who comes first.

use std::time::Duration;

use snakepit::mailbox::{DeadReason, Send};

use super::desk::{Desk, bodies};
use super::{Held, Verdict, needs};
use crate::mailbox::Fixture;

pub(super) async fn first_deliveries_come_in_the_order_of_their_sends(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    needs!(desk, ordered);
    for number in 0..25 {
        desk.send(&number.to_string()).await;
    }
    let mut received = Vec::new();
    for most in [1, 7, 10, 10] {
        received.extend(bodies(&desk.receive(most, 50).await));
    }
    assert_eq!(received, (0..25).map(|number| number.to_string()).collect::<Vec<_>>());
    Held
}

pub(super) async fn higher_priorities_come_first(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    needs!(desk, priorities);
    for (body, priority) in [("low", -5), ("a", 0), ("high", 7), ("b", 0), ("higher", 100)] {
        desk.send_with(body, Send::new().priority(priority)).await;
    }
    assert_eq!(bodies(&desk.receive(10, 50).await), ["higher", "high", "a", "b", "low"]);
    Held
}

pub(super) async fn what_comes_back_keeps_its_place(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    needs!(desk, ordered);
    for body in ["a", "b", "c"] {
        desk.send(body).await;
    }
    let messages = desk.receive(2, 2).await;
    messages[0].nack(Duration::ZERO).await.expect("a nack");
    assert_eq!(bodies(&desk.mailbox.peek(10).await.expect("a look")), ["a", "c"]);
    desk.pass(2).await;
    assert_eq!(bodies(&desk.receive(10, 50).await), ["a", "b", "c"]);
    Held
}

pub(super) async fn what_was_delayed_takes_its_place_by_its_send(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    needs!(desk, ordered);
    desk.send_with("first", Send::new().delay(desk.units(2))).await;
    desk.send("second").await;
    assert_eq!(bodies(&desk.mailbox.peek(10).await.expect("a look")), ["second"]);
    desk.pass(2).await;
    assert_eq!(bodies(&desk.receive(10, 50).await), ["first", "second"]);
    Held
}

pub(super) async fn what_is_redriven_comes_last(fixture: &dyn Fixture) -> Verdict {
    let desk = Desk::new(fixture).await;
    needs!(desk, ordered);
    for body in ["dead", "alive"] {
        desk.send(body).await;
    }
    let dead = desk.receive(1, 50).await.remove(0);
    dead.bury(DeadReason::Failed { error: "no".into() }).await.expect("it is buried");
    desk.mailbox.redrive(None).await.expect("a redrive");
    assert_eq!(bodies(&desk.receive(10, 50).await), ["alive", "dead"]);
    Held
}
