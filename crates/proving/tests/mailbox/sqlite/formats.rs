//! Files of older versions can always be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{
    DeadLetterPolicy, DeadReason, Mailbox, ReceiveOptions, SendOptions, SettingsChange, SqliteMailbox,
};

use snakepit_proving::mailbox_faults::SettableClock;

use super::{block_on, dir, until_closed};

/// Returns the path of a file that the first version wrote and that is never rewritten.
fn sample() -> PathBuf {
    sample_of(1)
}

fn sample_of(version: u32) -> PathBuf {
    let file = format!("tests/mailbox/data/version-{version}.mailbox");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Returns the path of a copy of the sample, which is to be changed.
fn copy_of(version: u32, dir: &Path) -> PathBuf {
    let path = dir.join("mail");
    fs::copy(sample_of(version), &path).expect("a copy");
    path
}

fn version(path: &Path) -> i64 {
    let file = rusqlite::Connection::open(path).expect("a file");
    file.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version")
}

#[test]
fn a_file_of_version_2_is_read_with_all_that_is_in_it() {
    let dir = dir();
    let path = copy_of(2, dir.path());
    let clock = Arc::new(SettableClock::of_another_boot("of another machine"));
    let mailbox = SqliteOptions::new().queue("orders").clock(clock).open(&path).expect("an old mailbox");
    let settings = block_on(mailbox.settings()).expect("settings");
    assert_eq!((settings.max_deliveries, settings.paused), (7, true));
    assert_eq!(settings.group_rate_limit.map(|rate| rate.messages), Some(5));
    let count = block_on(mailbox.count()).expect("a count");
    assert_eq!((count.visible, count.in_flight, count.delayed, count.dead), (3, 0, 1, 0));
    // Sends and receives use what is new in version 3.
    let rates = SettingsChange::new().resume().no_rate_limit().group_rate_limit(1, Duration::from_hours(1));
    block_on(mailbox.configure(rates)).expect("it is set");
    for body in ["5", "6"] {
        let options = SendOptions::new().rate_key("customer-7");
        block_on(mailbox.send(body.into(), options)).expect("it is sent");
    }
    let messages = block_on(mailbox.receive(ReceiveOptions::new().max_messages(10))).expect("a receive");
    let seen: Vec<&[u8]> = messages.iter().map(|message| &message.body[..]).collect();
    assert_eq!(seen, [&b"first"[..], b"{\"n\":1}", b"alone"], "a group and a rate key share a limit");
    let first = &messages[0];
    assert_eq!((first.group.as_deref(), first.rate_key.as_deref()), (Some("customer-7"), None));
    assert_eq!((first.delivery_count, first.attempts[0].error.as_deref()), (2, Some("KeyError: x")));
    assert_eq!(messages[1].keep_result, Some(Duration::from_hours(12)));
}

#[test]
fn looking_at_an_old_file_upgrades_it() {
    for old in [1, 2] {
        let dir = dir();
        let path = copy_of(old, dir.path());
        let mailbox = SqliteOptions::new().queue("orders").existing().open(&path).expect("an old mailbox");
        block_on(mailbox.count()).expect("a count");
        drop(mailbox);
        until_closed(&path);
        assert_eq!(version(&path), 3);
    }
}

#[test]
fn a_file_of_version_1_is_read_with_all_that_is_in_it() {
    let dir = dir();
    let path = dir.path().join("mail");
    fs::copy(sample(), &path).expect("a copy");
    let clock = Arc::new(SettableClock::of_another_boot("of another machine"));
    let mailbox = SqliteOptions::new().queue("orders").clock(clock).open(&path).expect("an old mailbox");
    let count = block_on(mailbox.count()).expect("a count");
    assert_eq!((count.visible, count.in_flight, count.delayed, count.dead), (4, 0, 0, 1));
    let messages = block_on(mailbox.receive(ReceiveOptions::new().max_messages(10))).expect("a receive");
    let seen: Vec<(&[u8], i8, u32)> = messages
        .iter()
        .map(|it| (&it.body[..it.body.len().min(8)], it.priority, it.delivery_count))
        .collect();
    let expected: [(&[u8], i8, u32); 4] =
        [(b"urgent", 7, 1), (b"leased", 0, 2), (b"delayed", 0, 1), (b"LLLLLLLL", 0, 1)];
    assert_eq!(seen, expected);
    assert_eq!(messages[3].body.len(), 5000);
    // New in version 2: the lease ended with the boot, and the limit belongs to the queue.
    assert_eq!(messages[1].attempts.len(), 1);
    assert_eq!(block_on(mailbox.settings()).expect("settings").max_deliveries, 5);
    let urgent = &messages[0];
    assert_eq!(urgent.attributes.get("colour").map(String::as_str), Some("red"));
    assert_eq!((urgent.reply_to.as_deref(), urgent.trace.as_deref()), (Some("replies"), Some("00-1-2-01")));
    block_on(urgent.reply(&"done")).expect("the queue of the replies is there");
    let letters = block_on(mailbox.dead_letters(10)).expect("dead letters");
    assert_eq!(&letters[0].message.body[..], b"dead");
    assert_eq!(letters[0].reason, DeadReason::Failed { error: "no use".into() });
    assert_eq!(block_on(mailbox.redrive(None)).expect("a redrive"), 1);
}

#[test]
#[ignore = "writes the sample anew; only for the first version of a format"]
fn write_the_sample() {
    let path = sample();
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let policy = DeadLetterPolicy::new();
    let mailbox = SqliteOptions::new().queue("orders").policy(policy).open(&path).expect("a mailbox");
    SqliteMailbox::open_named(&path, "replies").expect("a mailbox");
    let send = |body: &[u8], options: SendOptions| {
        block_on(mailbox.send(body.to_vec(), options)).expect("it is sent")
    };
    send(b"dead", SendOptions::new());
    let dead = block_on(mailbox.receive(ReceiveOptions::new())).expect("a receive");
    block_on(dead[0].bury(DeadReason::Failed { error: "no use".into() })).expect("a bury");
    send(b"leased", SendOptions::new());
    block_on(mailbox.receive(ReceiveOptions::new().visibility_timeout(Duration::from_hours(12))))
        .expect("a receive");
    send(b"delayed", SendOptions::new().delay(Duration::from_millis(1)));
    send(
        &[b'L'; 5000],
        SendOptions::new().dedup_key("large").time_to_live(Duration::from_hours(24 * 365 * 100)),
    );
    let urgent =
        SendOptions::new().priority(7).attribute("colour", "red").reply_to("replies").trace("00-1-2-01");
    send(b"urgent", urgent);
    drop((mailbox, dead));
    until_closed(&path);
}
