//! Finished messages leave nothing behind, however long their timers would have run.

use super::*;
use crate::MemoryMailbox;
use crate::clock::BootClock;

const HOUR: Duration = Duration::from_hours(1);

fn mailbox() -> Arc<dyn Mailbox> {
    Arc::new(MemoryMailbox::new("memory"))
}

fn store(max_deliveries: u32) -> Store {
    Store::new(QueueSettings { max_deliveries, ..QueueSettings::default() }, Arc::new(BootClock))
}

fn receive(store: &mut Store, now: u64, due: u64) -> Vec<Message> {
    store.receive(1, (now, SystemTime::UNIX_EPOCH), due, mailbox)
}

fn receipt(messages: &[Message]) -> Receipt {
    messages[0].receipt.clone().expect("a receipt")
}

#[test]
fn acknowledged_messages_leave_no_timers_behind() {
    let mut store = store(5);
    for now in 0..10_000 {
        let mut options = SendOptions::new().time_to_live(HOUR);
        store.send(b"a".to_vec(), &mut options, now, BootClock.wall());
        let messages = receive(&mut store, now, after(now, HOUR));
        store.change_lease(&receipt(&messages), &LeaseChange::Ack, now).expect("it is leased");
    }
    assert!(store.timers.len() < 300, "{}", store.timers.len());
    assert!(store.slots.len() < 3, "{}", store.slots.len());
}

#[test]
fn leases_given_back_leave_no_timers_behind() {
    let mut store = store(u32::MAX);
    store.send(b"a".to_vec(), &mut SendOptions::new(), 0, BootClock.wall());
    for now in 0..10_000 {
        let messages = receive(&mut store, now, after(now, HOUR));
        store
            .change_lease(&receipt(&messages), &LeaseChange::Nack(crate::NackOptions::new()), now)
            .expect("it is leased");
    }
    assert!(store.timers.len() < 300, "{}", store.timers.len());
    assert_eq!(store.visible.len(), 1);
}

#[test]
fn messages_that_expire_behind_others_leave_no_entries_behind() {
    let mut store = store(5);
    for now in 0..10_000 {
        store.send(
            b"never received".to_vec(),
            &mut SendOptions::new().time_to_live(Duration::from_nanos(1)),
            now,
            BootClock.wall(),
        );
        store.settle(now + 1);
    }
    assert_eq!(store.count(), MessageCounts { dead: 10_000, ..MessageCounts::default() });
    assert!(store.visible.len() < 300, "{}", store.visible.len());
    assert!(store.timers.len() < 300, "{}", store.timers.len());
}

#[test]
fn extended_and_shortened_leases_end_on_time() {
    let mut store = store(u32::MAX);
    store.send(b"a".to_vec(), &mut SendOptions::new(), 0, BootClock.wall());
    let lease = receipt(&receive(&mut store, 0, 1000));
    let nanos = Duration::from_nanos;
    store
        .change_lease(&lease, &LeaseChange::Extend(nanos(100), LeaseExtension::Exactly), 0)
        .expect("it is leased");
    store
        .change_lease(&lease, &LeaseChange::Extend(nanos(5000), LeaseExtension::AtLeast), 50)
        .expect("it is leased");
    for (now, in_flight) in [(100, 1), (1000, 1), (5049, 1), (5050, 0)] {
        store.settle(now);
        assert_eq!(store.count().in_flight, in_flight, "at {now}");
    }
    assert_eq!(store.count().visible, 1);
    let again = receipt(&receive(&mut store, 5050, 6000));
    assert!(store.change_lease(&lease, &LeaseChange::Ack, 5051).is_err());
    store.change_lease(&again, &LeaseChange::Ack, 5999).expect("it is leased");
    store.settle(10_000);
    assert_eq!(store.count(), MessageCounts::default());
}
