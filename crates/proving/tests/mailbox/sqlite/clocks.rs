//! The wall clock does not affect leases. Another boot ends all of them.

use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_proving::mailbox_faults::SettableClock;

use super::{block_on, dir};

const HOUR: Duration = Duration::from_hours(1);

fn open(path: &std::path::Path, clock: &Arc<SettableClock>) -> SqliteMailbox {
    SqliteOptions::new().clock(Arc::clone(clock) as _).open(path).expect("a mailbox")
}

fn count(mailbox: &SqliteMailbox) -> [u64; 4] {
    let count = block_on(mailbox.count()).expect("a count");
    [count.visible, count.in_flight, count.delayed, count.dead]
}

#[test]
fn q10_a_jump_of_the_wall_clock_changes_no_lease_delay_or_time_to_live() {
    type Jump = fn(&SettableClock);
    let jumps: [Jump; 2] = [|clock| clock.set_wall_forward(HOUR), |clock| clock.set_wall_back(HOUR)];
    for jump in jumps {
        let (dir, clock) = (dir(), Arc::new(SettableClock::new()));
        let mailbox = open(&dir.path().join("mail"), &clock);
        block_on(mailbox.send(b"leased".to_vec(), SendOptions::new())).expect("it is sent");
        let minutes = Duration::from_mins;
        let held = block_on(mailbox.receive(ReceiveOptions::new().visibility_timeout(minutes(10))))
            .expect("a receive");
        block_on(mailbox.send(b"delayed".to_vec(), SendOptions::new().delay(minutes(10))))
            .expect("it is sent");
        block_on(mailbox.send(b"mortal".to_vec(), SendOptions::new().time_to_live(minutes(10))))
            .expect("it is sent");
        let keyed = SendOptions::new().dedup_key("k").delay(minutes(30));
        let first = block_on(mailbox.send(b"keyed".to_vec(), keyed.clone())).expect("it is sent");
        jump(&clock);
        assert_eq!(count(&mailbox), [1, 1, 2, 0]);
        assert_eq!(block_on(mailbox.send(b"again".to_vec(), keyed)).expect("it is known"), first);
        clock.pass(minutes(9));
        assert_eq!(count(&mailbox), [1, 1, 2, 0]);
        block_on(held[0].extend(minutes(2))).expect("the lease holds");
        clock.pass(minutes(1));
        assert_eq!(count(&mailbox), [1, 1, 1, 1]);
        clock.pass(minutes(1));
        assert_eq!(count(&mailbox), [2, 0, 1, 1]);
        block_on(held[0].ack()).expect_err("the lease is over");
    }
}

#[test]
fn another_boot_ends_all_leases_and_moves_delays_by_the_wall_clock() {
    let (dir, clock) = (dir(), Arc::new(SettableClock::new()));
    let path = dir.path().join("mail");
    let mailbox = open(&path, &clock);
    let minutes = Duration::from_mins;
    block_on(mailbox.send(b"leased".to_vec(), SendOptions::new())).expect("it is sent");
    let held = block_on(mailbox.receive(ReceiveOptions::new().visibility_timeout(HOUR))).expect("a receive");
    let receipt = held[0].receipt.clone().expect("a receipt");
    drop(held);
    block_on(mailbox.send(b"delayed".to_vec(), SendOptions::new().delay(minutes(30)))).expect("it is sent");
    block_on(mailbox.send(b"mortal".to_vec(), SendOptions::new().time_to_live(minutes(40))))
        .expect("it is sent");
    drop(mailbox);
    super::until_closed(&path);

    // The machine was off for twenty minutes. Where its boot clock starts does not matter.
    let later = Arc::new(SettableClock::of_another_boot("another"));
    later.pass(minutes(5));
    later.set_wall_forward(minutes(15));
    let mailbox = open(&path, &later);
    assert_eq!(count(&mailbox), [2, 0, 1, 0]);
    block_on(mailbox.ack(&receipt)).expect_err("it died with the machine");
    later.pass(minutes(9));
    assert_eq!(count(&mailbox), [2, 0, 1, 0]);
    later.pass(minutes(2));
    assert_eq!(count(&mailbox), [3, 0, 0, 0]);
    later.pass(minutes(10));
    assert_eq!(count(&mailbox), [2, 0, 0, 1]);
}

#[test]
fn a_wall_clock_set_back_by_years_extends_no_delay_beyond_its_length() {
    let (dir, clock) = (dir(), Arc::new(SettableClock::new()));
    let path = dir.path().join("mail");
    let mailbox = open(&path, &clock);
    block_on(mailbox.send(b"delayed".to_vec(), SendOptions::new().delay(HOUR))).expect("it is sent");
    block_on(mailbox.send(b"mortal".to_vec(), SendOptions::new().time_to_live(HOUR))).expect("it is sent");
    drop(mailbox);
    super::until_closed(&path);

    let later = Arc::new(SettableClock::of_another_boot("another"));
    later.set_wall_back(HOUR * 24 * 365 * 20);
    let mailbox = open(&path, &later);
    assert_eq!(count(&mailbox), [1, 0, 1, 0]);
    later.pass(HOUR);
    assert_eq!(count(&mailbox), [1, 0, 0, 1]);
}

#[test]
fn a_kept_result_outlives_a_boot_by_the_wall_clock_and_no_longer_than_it_was_to_be_kept() {
    let (dir, clock) = (dir(), Arc::new(SettableClock::new()));
    let path = dir.path().join("mail");
    let mailbox = open(&path, &clock);
    let day = HOUR * 24;
    let id =
        block_on(mailbox.send(b"a".to_vec(), SendOptions::new().keep_result(day * 3))).expect("it is sent");
    let message = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive").remove(0);
    block_on(message.reply(&7)).expect("it is answered");
    drop((message, mailbox));
    super::until_closed(&path);

    let is_kept = |clock: &Arc<SettableClock>| {
        let mailbox = open(&path, clock);
        let reply = block_on(mailbox.result(id, Duration::ZERO)).expect("a look");
        drop(mailbox);
        super::until_closed(&path);
        reply.is_some()
    };
    let two_days_later = Arc::new(SettableClock::of_another_boot("second"));
    two_days_later.set_wall_forward(day * 2);
    assert!(is_kept(&two_days_later));
    two_days_later.pass(HOUR * 23);
    assert!(is_kept(&two_days_later), "a day was left");
    two_days_later.pass(HOUR);
    assert!(!is_kept(&two_days_later));
    // The wall clock has lost its years.
    let lost = Arc::new(SettableClock::of_another_boot("third"));
    lost.set_wall_back(day * 365 * 20);
    assert!(is_kept(&lost));
    lost.pass(day * 3);
    assert!(!is_kept(&lost));
}
