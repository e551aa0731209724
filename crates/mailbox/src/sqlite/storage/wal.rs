//! The file's write-ahead log: how it gets to disk, and how the main file learns that it needs its log.
//!
//! A commit does not sync the log. The writer syncs it after the commit, when the file is unlocked again, and before it tells a
//! caller that a change is done: so the syncs of several processes happen at the same time. One sync covers all earlier commits,
//! those of other processes included, so whatever a caller was told is there after a power cut.
//!
//! The main file has a number, its generation. It is odd while the log may have something that the main file lacks. The first writer
//! makes it odd, in the main file, before anything else is committed; a process that finds the file quiet, or closes it last, moves
//! the log into the main file and makes it even. So a main file that was copied or moved without its log either has everything
//! or says that something is missing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::OFlags;

use super::beside;

/// How often a transaction begins again because the file became quiet in between.
const TRIES: usize = 3;

/// Brings the log to disk. Tests have their own.
pub trait LogSync: fmt::Debug + Send + Sync {
    /// When it returns, everything that was written to the log before is on disk.
    fn sync(&self, log: &File, path: &Path) -> io::Result<()>;
}

/// Uses the system's sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskSync;

impl LogSync for DiskSync {
    fn sync(&self, log: &File, _: &Path) -> io::Result<()> {
        log.sync_data()
    }
}

/// The log of an open connection. SQLite has no locks on it, so it may be opened and closed beside SQLite.
#[derive(Debug)]
pub(crate) struct Wal {
    path: PathBuf,
    file: File,
}

impl Wal {
    /// The connection must have read something, so that there is a log.
    pub(crate) fn open(file: &Path) -> io::Result<Self> {
        let path = beside(file, "-wal");
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path)?;
        Ok(Self { path, file })
    }

    pub(crate) fn sync(&self, how: &dyn LogSync) -> io::Result<()> {
        how.sync(&self.file, &self.path)
    }
}

/// How much of the log is in the main file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checkpoint {
    Whole,
    Part,
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Checkpoint> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (is_busy, frames, moved): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(if !is_busy && frames == moved { Checkpoint::Whole } else { Checkpoint::Part })
    })
}

/// Moves the log into the file and starts it again. Returns false if others use it.
pub(crate) fn restart(connection: &Connection) -> rusqlite::Result<bool> {
    // The log is not truncated: an empty log beside a main file that needs one counts as lost.
    Ok(checkpoint(connection, "RESTART")? == Checkpoint::Whole)
}

fn generation(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT generation FROM file")?.query_row([], |row| row.get(0))
}

fn is_odd(generation: i64) -> bool {
    generation & 1 == 1
}

pub(crate) fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Begins a transaction. `known` is the generation that the main file is known to have; `may_write` is asked in the transaction.
pub(crate) fn begin(
    connection: &Connection,
    known: &mut Option<i64>,
    may_write: impl Fn() -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    for _ in 0..TRIES {
        run(connection, "BEGIN IMMEDIATE")?;
        if Some(generation(connection)?) == *known || !may_write()? {
            return Ok(());
        }
        run(connection, "ROLLBACK")?;
        *known = Some(mark(connection)?);
    }
    run(connection, "BEGIN IMMEDIATE")
}

/// Makes the main file say that it needs its log.
fn mark(connection: &Connection) -> rusqlite::Result<i64> {
    run(connection, "BEGIN IMMEDIATE")?;
    let mut now = generation(connection)?;
    if !is_odd(now) {
        run(connection, "UPDATE file SET generation = generation + 1")?;
        now += 1;
    }
    run(connection, "COMMIT")?;
    if checkpoint(connection, "PASSIVE")? == Checkpoint::Part
        && checkpoint(connection, "FULL")? == Checkpoint::Part
    {
        // Another process reads for longer than this one waits: the mark follows with the next checkpoint.
        tracing::debug!("a mailbox's main file cannot be marked yet: others read it");
    }
    Ok(now)
}

/// Moves the whole log into the main file, and makes the main file say so. Returns false if others use the file.
pub(crate) fn complete(connection: &Connection) -> rusqlite::Result<bool> {
    let before = data_version(connection)?;
    if checkpoint(connection, "PASSIVE")? == Checkpoint::Part {
        return Ok(false);
    }
    run(connection, "BEGIN IMMEDIATE")?;
    // Under the lock: nobody may have written since the checkpoint.
    if data_version(connection)? != before {
        run(connection, "ROLLBACK")?;
        return Ok(false);
    }
    if is_odd(generation(connection)?) {
        run(connection, "UPDATE file SET generation = generation + 1")?;
    }
    run(connection, "COMMIT")?;
    Ok(checkpoint(connection, "TRUNCATE")? == Checkpoint::Whole)
}

/// Whether the main file needs a log that is missing. Asked before anything is written.
pub(crate) fn is_lost(connection: &Connection, file: &Path) -> rusqlite::Result<bool> {
    let log = beside(file, "-wal");
    let before = generation(connection)?;
    // SQLite has created an empty one if there was none.
    if !is_odd(before) || fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Ok(false);
    }
    // A process that completes the file says so before it empties the log.
    Ok(generation(connection)? == before)
}

/// Makes the main file say that it is complete without its log.
pub(crate) fn accept_loss(connection: &Connection) -> rusqlite::Result<()> {
    run(connection, "UPDATE file SET generation = generation + 1 WHERE generation % 2 = 1")
}
