//! A crate outside this repository can create everything that a backend returns, and make the same decisions as our
//! backends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use snakepit::mailbox::backend::{
    MessageIds, RatePeriod, Throttle, TimeToLive, given_up, remember_attempt, this_process,
};
use snakepit::mailbox::{
    Attempt, AttemptEnd, Capabilities, DeadLetter, DeadReason, FoundMessage, LeaseChange, Mailbox,
    MemoryMailbox, Message, MessageId, MessageState, NackOptions, QueueSettings, Receipt, Reply, SendOptions,
    SettingsChange, Support,
};

fn message() -> Message {
    let id = MessageIds::new().next(SystemTime::now());
    let mailbox: Arc<dyn Mailbox> = Arc::new(MemoryMailbox::new("outside"));
    let mut message = Message::new(id, b"body".to_vec(), mailbox);
    message.receipt = Some(Receipt::from("lease-7"));
    message.delivery_count = 2;
    message
}

#[test]
fn a_third_party_backend_can_construct_messages_dead_letters_and_replies() {
    let message = message();
    let id = message.id;
    assert_eq!(id.to_string().parse::<MessageId>().expect("an id"), id);
    assert_eq!(message.receipt.as_ref().map(ToString::to_string).as_deref(), Some("lease-7"));
    let letter = DeadLetter::new(message.clone(), DeadReason::Expired, SystemTime::UNIX_EPOCH);
    assert_eq!((letter.message.id, letter.reason), (id, DeadReason::Expired));
    let found = FoundMessage::new(message, MessageState::InFlight { holder: this_process() });
    assert_eq!(found.message.delivery_count, 2);
    let options = SendOptions::new().answering(id, &[("k".into(), "v".into())].into(), Some("trace"));
    let reply = Reply::new(id, id, b"7".to_vec(), options, SystemTime::UNIX_EPOCH);
    assert_eq!((reply.read::<u32>().expect("a number"), reply.trace.as_deref()), (7, Some("trace")));
    let mut capabilities = Capabilities::ALL;
    capabilities.shared = Support::No("one process");
    assert_eq!(capabilities.groups, Support::Yes);
}

#[test]
fn a_third_party_backend_can_store_attempts_as_text() {
    let mut attempts = Vec::new();
    for delivery in 1..=20 {
        let error = (delivery == 1).then_some("no such key");
        let (began, took) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
        remember_attempt(&mut attempts, Attempt::new(delivery, began, took, AttemptEnd::Nack, error));
    }
    assert_eq!((attempts.len(), attempts[0].delivery, attempts[1].delivery), (17, 1, 5));
    let text = serde_json::to_string(&attempts).expect("JSON");
    assert_eq!(serde_json::from_str::<Vec<Attempt>>(&text).expect("attempts"), attempts);
}

#[test]
fn a_third_party_backend_can_use_the_shared_decisions() {
    assert_eq!(given_up(5, 5, TimeToLive::Over), Some(DeadReason::Deliveries));
    assert_eq!(given_up(4, 5, TimeToLive::Over), Some(DeadReason::Expired));
    assert_eq!(given_up(4, 5, TimeToLive::Left), None);
    assert!(LeaseChange::Nack(NackOptions::new().visibility(Duration::MAX)).check().is_err());
    let limited = SettingsChange::new().rate_limit(2, Duration::from_secs(1));
    let settings = limited.applied_to(&QueueSettings::default());
    let at = |now: u64, period| settings.throttle(now, |_| Ok::<_, ()>((period, 1000))).expect("a throttle");
    let used = RatePeriod::spend(None, 10, 1000, 2);
    assert_eq!((at(10, None), at(20, Some(used))), (Throttle::AtMost(2), Throttle::Until(1010)));
    assert_eq!(at(1010, Some(used)), Throttle::AtMost(2));
}
