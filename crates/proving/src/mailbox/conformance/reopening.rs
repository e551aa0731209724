//! What outlives its process is as it was when another one opens it.

use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::{DeadReason, Send};

use super::desk::{Desk, assert_expired, bodies};
use super::{Held, Verdict, needs};
use crate::mailbox::Fixture;

impl Desk<'_> {
    async fn reopen(&mut self) {
        self.mailbox = self.fixture.reopen(self.mailbox.as_ref()).await;
    }
}

pub(super) async fn messages_outlive_their_process(fixture: &dyn Fixture) -> Verdict {
    let mut desk = Desk::new(fixture).await;
    needs!(desk, outlives_process);
    let options = Send::new().priority(4).attribute("k", "v").reply_to("r").trace("t").dedup_key("key");
    let id = desk.send_with("a", options.clone()).await;
    desk.send_with("later", Send::new().delay(desk.units(5))).await;
    desk.send_with("dying", Send::new().time_to_live(desk.units(5))).await;
    desk.reopen().await;
    desk.assert_count([2, 0, 1, 0]).await;
    assert_eq!(desk.send_with("again", options).await, id);
    let message = desk.receive(1, 50).await.remove(0);
    assert_eq!((message.id, &message.body[..], message.delivery_count), (id, &b"a"[..], 1));
    assert_eq!(
        (message.priority, message.reply_to.as_deref(), message.trace.as_deref()),
        (4, Some("r"), Some("t"))
    );
    assert_eq!(message.attributes.get("k").map(String::as_str), Some("v"));
    desk.pass(5).await;
    desk.assert_count([1, 1, 0, 1]).await;
    Held
}

pub(super) async fn leases_outlive_their_process(fixture: &dyn Fixture) -> Verdict {
    let mut desk = Desk::limited(fixture, 2).await;
    needs!(desk, outlives_process);
    desk.send("kept").await;
    desk.send("lapsed").await;
    let kept = desk.receive(1, 100).await.remove(0).receipt.expect("a receipt");
    let lapsed = desk.receive(1, 5).await.remove(0).receipt.expect("a receipt");
    desk.reopen().await;
    desk.assert_count([0, 2, 0, 0]).await;
    desk.pass(5).await;
    desk.mailbox.ack(&kept).await.expect("the lease holds");
    assert_expired(&desk.mailbox.ack(&lapsed).await);
    let again = desk.receive_one(50).await;
    assert_eq!((bodies(std::slice::from_ref(&again)), again.delivery_count), (vec!["lapsed".to_owned()], 2));
    assert_ne!(again.receipt.as_ref(), Some(&lapsed));
    again.nack(Duration::ZERO).await.expect("a nack");
    desk.assert_count([0, 0, 0, 1]).await;
    Held
}

pub(super) async fn dead_letters_outlive_their_process(fixture: &dyn Fixture) -> Verdict {
    let mut desk = Desk::new(fixture).await;
    needs!(desk, outlives_process);
    let id = desk.send("a").await;
    let reason = DeadReason::Undecodable { error: "no number".into() };
    desk.receive_one(50).await.bury(reason.clone()).await.expect("it is buried");
    desk.reopen().await;
    let letter = desk.dead_letter().await;
    assert_eq!((letter.message.id, letter.reason), (id, reason));
    assert_eq!(desk.mailbox.redrive(None).await.expect("a redrive"), 1);
    desk.reopen().await;
    assert_eq!(desk.receive_one(50).await.id, id);
    Held
}

pub(super) async fn what_was_done_stays_done(fixture: &dyn Fixture) -> Verdict {
    let mut desk = Desk::new(fixture).await;
    needs!(desk, outlives_process);
    for body in ["acked", "purged"] {
        desk.send(body).await;
        let message = desk.receive_one(2).await;
        if body == "acked" { message.ack().await.expect("an ack") } else { drop(desk.mailbox.purge().await) }
    }
    desk.reopen().await;
    desk.pass(2).await;
    desk.assert_count([0, 0, 0, 0]).await;
    let first = Arc::clone(&desk.mailbox);
    desk.send("new").await;
    assert_eq!(first.name(), desk.mailbox.name());
    assert_eq!(bodies(&desk.receive(10, 50).await), ["new"]);
    Held
}
