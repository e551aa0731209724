//! The write-ahead log of the file: how it gets to disk, and how the main file records that it needs its log.
//!
//! A commit does not sync the log. The writer syncs the log after the commit, when the file is unlocked
//! again, and before it tells a caller that a change is done. So several processes can sync at the same time.
//! One sync covers all earlier commits, including those of other processes. So everything that a caller was
//! told survives a power cut.
//!
//! The main file contains a number, its generation. It is odd while the log may contain something that the
//! main file lacks. The first writer makes it odd in the main file before it commits anything else. A process
//! that finds the file idle, or closes it last, moves the log into the main file and makes the number even.
//! So a main file that was copied or moved without its log is either complete or opens with an error.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::OFlags;

use super::beside;

/// How often a transaction is begun again because the file was completed in between.
const TRIES: usize = 3;

/// Syncs the log to disk. Tests have implementations of their own.
pub trait LogSync: fmt::Debug + Send + Sync {
    /// Returns when everything written to the log before the call is on disk.
    fn sync(&self, log: &File, path: &Path) -> io::Result<()>;
}

/// Uses `fdatasync`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskSync;

impl LogSync for DiskSync {
    fn sync(&self, log: &File, _: &Path) -> io::Result<()> {
        log.sync_data()
    }
}

/// The log of an open connection. SQLite puts no locks on the log, so opening and closing it here releases
/// none.
#[derive(Debug)]
pub(crate) struct Wal {
    path: PathBuf,
    file: File,
}

impl Wal {
    /// Opens the log. The connection must have read something before, so that the log exists.
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

/// How much of the log a checkpoint has moved into the main file.
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

/// Moves the log into the main file and starts the log again. Returns false if others still use the log.
pub(crate) fn restart(connection: &Connection) -> rusqlite::Result<bool> {
    // The log is not truncated, because an empty log beside a main file that needs one counts as lost.
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

/// Begins a transaction that may write. First marks the main file as incomplete without its log, unless
/// `known` shows that it is marked or `may_write` returns false. `known` is the generation with which the
/// main file is known to be marked. `may_write` is called inside the transaction.
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

/// Marks the main file as incomplete without its log. Returns the generation.
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
        // Another process reads for longer than this process waits. The mark reaches the main file with the
        // next checkpoint.
        tracing::debug!("a mailbox's main file cannot be marked yet: others read it");
    }
    Ok(now)
}

/// Moves the whole log into the main file and marks the file as complete. Returns false if others use the
/// file.
pub(crate) fn complete(connection: &Connection) -> rusqlite::Result<bool> {
    let before = data_version(connection)?;
    if checkpoint(connection, "PASSIVE")? == Checkpoint::Part {
        return Ok(false);
    }
    run(connection, "BEGIN IMMEDIATE")?;
    // Checked under the lock: nobody may have written since the checkpoint.
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

/// Reports whether the main file needs a log that is missing. Called before anything is written.
pub(crate) fn is_lost(connection: &Connection, file: &Path) -> rusqlite::Result<bool> {
    let log = beside(file, "-wal");
    let before = generation(connection)?;
    // If there was no log, SQLite has created an empty one.
    if !is_odd(before) || fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Ok(false);
    }
    // A process that completes the file changes the generation before it empties the log. Then the log is not
    // lost.
    Ok(generation(connection)? == before)
}

/// Marks the main file as complete without its log.
pub(crate) fn accept_loss(connection: &Connection) -> rusqlite::Result<()> {
    run(connection, "UPDATE file SET generation = generation + 1 WHERE generation % 2 = 1")
}
