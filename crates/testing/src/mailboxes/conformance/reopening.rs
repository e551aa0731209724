//! Checks that a mailbox that outlives its process is unchanged when another process opens it.

use std::sync::Arc;
use std::time::Duration;

use snakepit_mailbox::{DeadReason, SendOptions};

use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, bodies};

pub(super) async fn messages_outlive_their_process(mut test: TestMailbox<'_>) {
    let options =
        SendOptions::new().priority(4).attribute("k", "v").reply_to("r").trace("t").dedup_key("key");
    let id = test.send_with("a", options.clone()).await;
    test.send_with("later", SendOptions::new().delay(test.units(5))).await;
    test.send_with("dying", SendOptions::new().time_to_live(test.units(5))).await;
    test.reopen().await;
    test.assert_count([2, 0, 1, 0]).await;
    assert_eq!(test.send_with("again", options).await, id);
    let message = test.receive(1, 50).await.remove(0);
    assert_eq!((message.id, &message.body[..], message.delivery_count), (id, &b"a"[..], 1));
    assert_eq!(
        (message.priority, message.reply_to.as_deref(), message.trace.as_deref()),
        (4, Some("r"), Some("t"))
    );
    assert_eq!(message.attributes.get("k").map(String::as_str), Some("v"));
    test.pass(5).await;
    test.assert_count([1, 1, 0, 1]).await;
}

pub(super) async fn leases_outlive_their_process(test: TestMailbox<'_>) {
    let mut test = test.limited(2).await;
    test.send("kept").await;
    test.send("lapsed").await;
    let kept = test.receive(1, 100).await.remove(0).receipt.expect("a receipt");
    let lapsed = test.receive(1, 5).await.remove(0).receipt.expect("a receipt");
    test.reopen().await;
    test.assert_count([0, 2, 0, 0]).await;
    test.pass(5).await;
    test.mailbox.ack(&kept).await.expect("the lease holds");
    assert_expired(&test.mailbox.ack(&lapsed).await);
    let again = test.receive_one(50).await;
    assert_eq!((bodies(std::slice::from_ref(&again)), again.delivery_count), (vec!["lapsed".to_owned()], 2));
    assert_ne!(again.receipt.as_ref(), Some(&lapsed));
    again.nack(Duration::ZERO).await.expect("a nack");
    test.assert_count([0, 0, 0, 1]).await;
}

pub(super) async fn dead_letters_outlive_their_process(mut test: TestMailbox<'_>) {
    let id = test.send("a").await;
    let reason = DeadReason::Undecodable { error: "no number".into() };
    test.receive_one(50).await.bury(reason.clone()).await.expect("it is buried");
    test.reopen().await;
    let letter = test.dead_letter().await;
    assert_eq!((letter.message.id, letter.reason), (id, reason));
    assert_eq!(test.mailbox.redrive(None).await.expect("a redrive"), 1);
    test.reopen().await;
    assert_eq!(test.receive_one(50).await.id, id);
}

pub(super) async fn what_was_done_stays_done(mut test: TestMailbox<'_>) {
    for body in ["acked", "purged"] {
        test.send(body).await;
        let message = test.receive_one(2).await;
        if body == "acked" { message.ack().await.expect("an ack") } else { drop(test.mailbox.purge().await) }
    }
    test.reopen().await;
    test.pass(2).await;
    test.assert_count([0, 0, 0, 0]).await;
    let first = Arc::clone(&test.mailbox);
    test.send("new").await;
    assert_eq!(first.name(), test.mailbox.name());
    assert_eq!(bodies(&test.receive(10, 50).await), ["new"]);
}
