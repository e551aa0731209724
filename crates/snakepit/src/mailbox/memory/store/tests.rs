//! What is done leaves nothing behind, however long its timers would have run.

use super::*;
use crate::mailbox::MemoryMailbox;

const HOUR: Duration = Duration::from_hours(1);

fn mailbox() -> Arc<dyn Mailbox> {
    Arc::new(MemoryMailbox::new("memory"))
}

fn store(max_deliveries: u32) -> Store {
    Store::new(QueueSettings { max_deliveries, ..QueueSettings::default() })
}

fn receive(store: &mut Store, now: u64, due: u64) -> Vec<Message> {
    store.receive(1, (now, SystemTime::UNIX_EPOCH), due, mailbox)
}

fn receipt(messages: &[Message]) -> Receipt {
    messages[0].receipt.clone().expect("a receipt")
}

#[test]
fn messages_that_are_done_leave_no_timers_behind() {
    let mut store = store(5);
    for now in 0..10_000 {
        let mut options = Send::new().time_to_live(HOUR);
        store.send(b"a".to_vec(), &mut options, now, SystemTime::now());
        let messages = receive(&mut store, now, after(now, HOUR));
        store.ack(&receipt(&messages), now).expect("it is leased");
    }
    assert!(store.timers.len() < 300, "{}", store.timers.len());
    assert!(store.slots.len() < 3, "{}", store.slots.len());
}

#[test]
fn leases_that_are_given_back_leave_no_timers_behind() {
    let mut store = store(u32::MAX);
    store.send(b"a".to_vec(), &mut Send::new(), 0, SystemTime::now());
    for now in 0..10_000 {
        let messages = receive(&mut store, now, after(now, HOUR));
        store.nack(&receipt(&messages), &Nack::new(), now).expect("it is leased");
    }
    assert!(store.timers.len() < 300, "{}", store.timers.len());
    assert_eq!(store.lanes.len(), 1);
}

#[test]
fn messages_that_expire_behind_others_leave_no_entries_behind() {
    let mut store = store(5);
    for now in 0..10_000 {
        store.send(
            b"never received".to_vec(),
            &mut Send::new().time_to_live(Duration::from_nanos(1)),
            now,
            SystemTime::now(),
        );
        store.settle(now + 1);
    }
    assert_eq!(store.count(), Count { dead: 10_000, ..Count::default() });
    assert!(store.lanes.len() < 300, "{}", store.lanes.len());
    assert!(store.timers.len() < 300, "{}", store.timers.len());
}

#[test]
fn leases_that_are_extended_and_shortened_end_when_they_should() {
    let mut store = store(u32::MAX);
    store.send(b"a".to_vec(), &mut Send::new(), 0, SystemTime::now());
    let lease = receipt(&receive(&mut store, 0, 1000));
    let nanos = Duration::from_nanos;
    store.extend(&lease, nanos(100), Extension::Exactly, 0).expect("it is leased");
    store.extend(&lease, nanos(5000), Extension::AtLeast, 50).expect("it is leased");
    for (now, in_flight) in [(100, 1), (1000, 1), (5049, 1), (5050, 0)] {
        store.settle(now);
        assert_eq!(store.count().in_flight, in_flight, "at {now}");
    }
    assert_eq!(store.count().visible, 1);
    let again = receipt(&receive(&mut store, 5050, 6000));
    assert!(store.ack(&lease, 5051).is_err());
    store.ack(&again, 5999).expect("it is leased");
    store.settle(10_000);
    assert_eq!(store.count(), Count::default());
}
