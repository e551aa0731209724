//! The backend emits the same events as the others.

use std::time::Duration;

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, ReceiveOptions, SendOptions};
use snakepit::telemetry::{self, Event, FieldValue, Subscription};

use super::{block_on, dir};

fn next(events: &mut Subscription, mailbox: &str) -> Event {
    loop {
        let event = events.next_within(Duration::from_secs(10)).expect("an event");
        let is_ours = |(name, value): &(&str, FieldValue<'_>)| {
            *name == "mailbox" && *value == FieldValue::Text(mailbox)
        };
        if event.fields().iter().any(is_ours) {
            return event;
        }
    }
}

#[test]
fn committed_changes_are_reported_as_events() {
    let dir = dir();
    let policy = DeadLetterPolicy::new().max_deliveries(1);
    let mailbox =
        SqliteOptions::new().queue("told").policy(policy).open(dir.path().join("mail")).expect("a mailbox");
    let mut events = telemetry::subscribe();
    for _ in 0..2 {
        // The second message is a duplicate and is not stored.
        block_on(mailbox.send(b"acked".to_vec(), SendOptions::new().dedup_key("k"))).expect("it is sent");
    }
    assert!(matches!(next(&mut events, "told"), Event::MailboxSent { messages: 1, .. }));
    let message = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive").remove(0);
    assert!(matches!(next(&mut events, "told"), Event::MailboxReceived { messages: 1, .. }));
    block_on(message.ack()).expect("an ack");
    assert!(matches!(next(&mut events, "told"), Event::MailboxAcked { messages: 1, .. }));

    block_on(mailbox.send(b"lapsed".to_vec(), SendOptions::new())).expect("it is sent");
    assert!(matches!(next(&mut events, "told"), Event::MailboxSent { messages: 1, .. }));
    block_on(mailbox.receive(ReceiveOptions::new().visibility_timeout(Duration::ZERO))).expect("a receive");
    assert_eq!(block_on(mailbox.count()).expect("a count").dead, 1);
    // Reading changes nothing and emits no event.
    assert!(block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive").is_empty());
    assert!(matches!(next(&mut events, "told"), Event::MailboxReceived { messages: 1, .. }));
    assert!(matches!(next(&mut events, "told"), Event::MailboxLeaseLapsed { delivery: 1, .. }));
    assert!(matches!(
        next(&mut events, "told"),
        Event::MailboxDeadLettered { reason: "deliveries", deliveries: 1, .. }
    ));
}
