//! The tables, their version, and how a file of an older version is upgraded.
//!
//! A message is one row of `message`, dead or alive. Each `state` has an index of its own, so that nothing is ever searched for:
//! `ready` in the order of delivery, `timed` by the end of a lease or a delay, `mortal` by the end of the time to live, `graves` by
//! the order of dying.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::clock::Clock;
use crate::options::{DEDUP_WINDOW, MAX_VISIBILITY};
use crate::sqlite::stored_time::{Micros, micros, wall_micros};

/// Marks the file as a mailbox: `SnMb`.
pub(crate) const APPLICATION: i32 = 0x536e_4d62;

/// The states of a message.
pub(crate) mod state {
    /// Other messages of its group come first.
    pub(crate) const BEHIND: i64 = -1;
    pub(crate) const READY: i64 = 0;
    pub(crate) const DELAYED: i64 = 1;
    pub(crate) const LEASED: i64 = 2;
    pub(crate) const DEAD: i64 = 3;
}

/// Each step upgrades the file by one version.
pub(crate) const STEPS: [&str; 3] = [FIRST, SECOND, THIRD];

/// The newest version.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

const FIRST: &str = "
CREATE TABLE file (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,         -- the boot that all times are of
    seen INTEGER NOT NULL       -- its clock when it was first seen
) STRICT;

CREATE TABLE queue (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE message (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again: receipts are made of it
    queue INTEGER NOT NULL,
    state INTEGER NOT NULL,         -- 0 ready, 1 delayed, 2 leased, 3 dead
    due INTEGER,                    -- since boot: the end of the delay or lease; only then
    due_wall INTEGER,               -- by the wall: the end of the delay, for the next boot
    expires INTEGER,                -- since boot: the end of the time to live
    expires_wall INTEGER,           -- by the wall: the same, for the next boot
    lifetime INTEGER,               -- the time to live, for a redrive
    lease INTEGER NOT NULL,         -- the number of its last lease, which only rises
    deliveries INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    grave INTEGER,                  -- its place among the dead
    died INTEGER,                   -- by the wall
    reason TEXT,                    -- JSON
    sent INTEGER NOT NULL,          -- by the wall
    id BLOB NOT NULL,
    reply_to TEXT,
    trace TEXT,
    attributes TEXT,                -- JSON
    large INTEGER,                  -- where the body is, if it is not here
    body BLOB
) STRICT;

-- Numbers start somewhere, so that a receipt of another file, or of one that had this name before, is good for nothing here.
INSERT INTO sqlite_sequence (name, seq) VALUES ('message', random() & 0xffffffffff);

CREATE INDEX ready ON message (queue, priority DESC, number) WHERE state = 0;
CREATE INDEX timed ON message (queue, due, state) WHERE due IS NOT NULL;
CREATE INDEX mortal ON message (queue, expires) WHERE expires IS NOT NULL AND state < 2;
CREATE INDEX graves ON message (queue, grave) WHERE grave IS NOT NULL;
CREATE INDEX dead_ids ON message (id) WHERE grave IS NOT NULL;

-- Bodies that would have to be written again with each change of their message.
CREATE TABLE large (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE dedup (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    id BLOB NOT NULL,
    until INTEGER NOT NULL,         -- since boot
    until_wall INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX forgettable ON dedup (until);
";

const SECOND: &str = "
ALTER TABLE file ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;

ALTER TABLE queue ADD COLUMN settings TEXT;             -- JSON; none: the default ones

ALTER TABLE message ADD COLUMN group_key TEXT;
ALTER TABLE message ADD COLUMN began INTEGER;           -- by the wall: when its last lease began
ALTER TABLE message ADD COLUMN holder TEXT;             -- who has, or had, that lease
ALTER TABLE message ADD COLUMN in_reply_to BLOB;        -- the id of the message that it answers
ALTER TABLE message ADD COLUMN keep_result INTEGER;     -- for how long its reply is kept

-- Leases that ended without an ack, the last few of each message. Beside it, so that a lease does not write them again.
CREATE TABLE attempt (
    message INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    began INTEGER NOT NULL,         -- by the wall
    took INTEGER NOT NULL,
    holder TEXT NOT NULL,
    ending INTEGER NOT NULL,        -- 0 nack, 1 lapse, 2 bury
    error TEXT,
    PRIMARY KEY (message, lease)
) STRICT, WITHOUT ROWID;

-- Replies that are kept, by the id of their request.
CREATE TABLE result (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- rises with each, so that whoever waits finds the new ones
    queue INTEGER NOT NULL,
    request BLOB NOT NULL UNIQUE,
    id BLOB NOT NULL,
    replied INTEGER NOT NULL,       -- by the wall
    until INTEGER NOT NULL,         -- since boot
    until_wall INTEGER NOT NULL,
    trace TEXT,
    attributes TEXT,                -- JSON
    body BLOB NOT NULL
) STRICT;

CREATE INDEX outdated ON result (until);

-- Of each group one message can be received, is delayed or leased; all others are behind it, in the order of their numbers.
CREATE INDEX heads ON message (queue, group_key) WHERE group_key IS NOT NULL AND state BETWEEN 0 AND 2;
CREATE INDEX behind ON message (queue, group_key, number) WHERE state = -1;

ALTER TABLE dedup ADD COLUMN lasts INTEGER;     -- for how long it is remembered; none: five minutes

-- How much of a rate limit is used.
CREATE TABLE rate (
    queue INTEGER NOT NULL,
    group_key TEXT NOT NULL,        -- empty: the whole queue
    began INTEGER NOT NULL,         -- since boot: when the period began
    used INTEGER NOT NULL,
    PRIMARY KEY (queue, group_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX old_rates ON rate (queue, began);

-- How many messages there are in each state, kept by each connection (COUNTING): counting them would take as long as there are.
CREATE TABLE tally (
    queue INTEGER NOT NULL,
    state INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;

INSERT INTO tally SELECT queue, state, count(*) FROM message GROUP BY queue, state;
";

const THIRD: &str = "
ALTER TABLE message ADD COLUMN rate_key TEXT;           -- whose rate it counts for; none: that of its group
ALTER TABLE message ADD COLUMN waits_for_rate INTEGER;  -- 1: its key had used up its rate, since its last lease

-- The last place that was given out in a later period: when that begins, and how many places of it are taken.
ALTER TABLE rate ADD COLUMN reserved INTEGER;
ALTER TABLE rate ADD COLUMN reserved_used INTEGER NOT NULL DEFAULT 0;
";

/// Triggers of a connection, not of the file: code in a file is never run. They keep `tally` true, whatever changes messages.
const COUNTING: &str = "
CREATE TEMP TRIGGER IF NOT EXISTS counted_in AFTER INSERT ON main.message BEGIN
    INSERT INTO tally VALUES (new.queue, new.state, 1) ON CONFLICT DO UPDATE SET messages = messages + 1;
END;
CREATE TEMP TRIGGER IF NOT EXISTS counted_out AFTER DELETE ON main.message BEGIN
    UPDATE tally SET messages = messages - 1 WHERE queue = old.queue AND state = old.state;
END;
CREATE TEMP TRIGGER IF NOT EXISTS counted_again AFTER UPDATE OF state ON main.message WHEN old.state <> new.state BEGIN
    UPDATE tally SET messages = messages - 1 WHERE queue = old.queue AND state = old.state;
    INSERT INTO tally VALUES (new.queue, new.state, 1) ON CONFLICT DO UPDATE SET messages = messages + 1;
END;
";

/// What a file is, before anything in it is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// New, or nothing was ever written into it.
    Empty,
    /// A mailbox of a known version.
    Mailbox,
    /// A mailbox of a later version.
    Newer(i64),
    /// A mailbox with triggers or views.
    Programmed,
    /// A database of another program.
    Foreign,
}

pub(crate) fn kind(connection: &Connection) -> rusqlite::Result<FileKind> {
    // At one moment: another process may be creating the file.
    let moment = connection.unchecked_transaction()?;
    let application: i32 = moment.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version = version(&moment)?;
    let tables: i64 = moment.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let code = "SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view')";
    let code: i64 = moment.query_row(code, [], |row| row.get(0))?;
    Ok(match (application, version) {
        (0, 0) if tables == 0 => FileKind::Empty,
        (APPLICATION, 0..=VERSION) if code > 0 => FileKind::Programmed,
        (APPLICATION, 0..=VERSION) => FileKind::Mailbox,
        (APPLICATION, newer) => FileKind::Newer(newer),
        _ => FileKind::Foreign,
    })
}

/// Whether a file of this version says if it needs its log.
pub(crate) fn has_generation(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? >= 2)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Upgrades the file to the newest version and converts its times to this boot: all of it, or nothing.
pub(crate) fn upgrade(
    connection: &mut Connection,
    steps: &[&str],
    clock: &dyn Clock,
) -> rusqlite::Result<()> {
    let is_current = version(connection)? == steps.len() as i64;
    if is_current && !is_of_another_boot(connection, clock)? {
        return count_changes(connection, steps);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it meanwhile.
    let from = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in steps.iter().skip(from) {
        transaction.execute_batch(step)?;
    }
    if from < steps.len() {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", steps.len() as i64)?;
    }
    count_changes(&transaction, steps)?;
    if is_of_another_boot(&transaction, clock)? {
        begin_boot(&transaction, clock)?;
    }
    transaction.commit()
}

/// From now on all changes by this connection are counted.
fn count_changes(connection: &Connection, steps: &[&str]) -> rusqlite::Result<()> {
    // The first version has nothing to count in.
    if steps.contains(&SECOND) { connection.execute_batch(COUNTING) } else { Ok(()) }
}

fn is_of_another_boot(connection: &Connection, clock: &dyn Clock) -> rusqlite::Result<bool> {
    let known: Option<(String, Micros)> = connection
        .query_row("SELECT boot, seen FROM file", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    // Where boots have no names, a clock that went back means a new boot.
    Ok(known.is_none_or(|(boot, seen)| boot != clock.boot() || micros(clock.since_boot()) < seen))
}

/// Leases of another boot are over: their holders died with it, and those deliveries count. Delays, times to live, kept replies and
/// dedup keys go on with what the wall clock says is left of them, and never with more than they can have had: a message that was
/// never leased was delayed by its send, any other by a nack.
fn begin_boot(transaction: &Transaction<'_>, clock: &dyn Clock) -> rusqlite::Result<()> {
    let now = micros(clock.since_boot());
    let wall = wall_micros(clock);
    // They lapse now, and are treated as any other lapsed lease.
    transaction.execute("UPDATE message SET due = ?1 WHERE state = 2", [now])?;
    transaction.execute(
        "UPDATE message SET due = ?1 + min(max(due_wall - ?2, 0), CASE lease WHEN 0 THEN due_wall - sent ELSE ?3 END)
             WHERE state = 1",
        params![now, wall, micros(MAX_VISIBILITY)],
    )?;
    transaction.execute(
        "UPDATE message SET expires = ?1 + min(max(expires_wall - ?2, 0), lifetime) WHERE expires IS NOT NULL",
        params![now, wall],
    )?;
    transaction.execute(
        "UPDATE dedup SET until = ?1 + min(max(until_wall - ?2, 0), coalesce(lasts, ?3))",
        params![now, wall, micros(DEDUP_WINDOW)],
    )?;
    transaction.execute("UPDATE message SET due = ?1 WHERE state = 1 AND waits_for_rate = 1", [now])?;
    transaction.execute("DELETE FROM rate", [])?;
    transaction.execute(
        "UPDATE result SET until = ?1 + min(max(until_wall - ?2, 0), until_wall - replied)",
        params![now, wall],
    )?;
    transaction.execute(
        "INSERT INTO file (one, boot, seen) VALUES (1, ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, seen = excluded.seen",
        params![clock.boot(), now],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{FIRST, FileKind, SECOND, STEPS, THIRD, kind, upgrade, version};
    use crate::sqlite::BootClock;

    fn first() -> Connection {
        let mut file = Connection::open_in_memory().expect("a file");
        upgrade(&mut file, &STEPS, &BootClock).expect("the newest version");
        file.execute("INSERT INTO queue (name) VALUES ('kept')", []).expect("a queue");
        file
    }

    fn queues(file: &Connection) -> Vec<String> {
        let mut statement = file.prepare("SELECT name FROM queue").expect("a statement");
        let names = statement.query_map([], |row| row.get(0)).expect("queues");
        names.collect::<rusqlite::Result<_>>().expect("names")
    }

    #[test]
    fn an_older_file_is_upgraded_step_by_step_and_keeps_its_content() {
        let mut file = first();
        let steps = [
            FIRST,
            SECOND,
            THIRD,
            "ALTER TABLE queue ADD COLUMN fourth TEXT",
            "ALTER TABLE queue ADD COLUMN fifth TEXT",
        ];
        upgrade(&mut file, &steps, &BootClock).expect("the fifth version");
        assert_eq!((version(&file), queues(&file)), (Ok(5), vec!["kept".to_owned()]));
        file.execute("UPDATE queue SET fourth = '', fifth = ''", []).expect("both columns");
        upgrade(&mut file, &steps, &BootClock).expect("nothing to do");
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let mut file = first();
        let steps = [
            FIRST,
            SECOND,
            THIRD,
            "ALTER TABLE queue ADD COLUMN fourth TEXT",
            "ALTER TABLE nothing ADD COLUMN fifth TEXT",
        ];
        upgrade(&mut file, &steps, &BootClock).expect_err("there is no such table");
        assert_eq!((version(&file), queues(&file)), (Ok(3), vec!["kept".to_owned()]));
        file.execute("UPDATE queue SET fourth = ''", []).expect_err("the fourth step is undone");
    }

    #[test]
    fn a_file_that_another_process_is_creating_is_empty_or_a_mailbox() {
        for _ in 0..100 {
            let dir = tempfile::tempdir().expect("a directory");
            let open = || {
                let file = Connection::open(dir.path().join("mail")).expect("a file");
                file.busy_timeout(std::time::Duration::from_secs(10)).expect("a timeout");
                file
            };
            let (mut maker, looker) = (open(), open());
            std::thread::scope(|scope| {
                let made = scope.spawn(move || upgrade(&mut maker, &STEPS, &BootClock));
                while kind(&looker).expect("a kind") != FileKind::Mailbox {
                    assert_ne!(kind(&looker), Ok(FileKind::Foreign));
                }
                made.join().expect("no panic").expect("made");
            });
        }
    }

    #[test]
    fn numbers_start_somewhere_else_in_each_file() {
        let start = |file: &Connection| -> i64 {
            let start = "SELECT seq FROM sqlite_sequence WHERE name = 'message'";
            file.query_row(start, [], |row| row.get(0)).expect("a number")
        };
        assert_ne!(start(&first()), start(&first()));
    }
}
