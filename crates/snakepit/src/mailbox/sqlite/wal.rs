//! The file's write-ahead log: how it gets onto the disk, and how the main file learns that it needs its log.
//!
//! A commit does not sync the log. The writer does that itself after the commit, when the file is not locked any more, and
//! before it answers anybody: so the syncs of several processes happen at the same time. One sync brings all that was
//! committed before it onto the disk, also what others have committed, so whatever anybody was told is there after a power cut.
//!
//! The main file has a number, its generation. It is odd while the log may have something that the main file does not have.
//! Whoever writes first makes it odd, in the main file, before anything else is committed; whoever finds the file quiet, or
//! closes it last, moves the log into the main file and makes it even. So a main file that was copied or moved without its log
//! either has everything or says that something is missing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::OFlags;

use super::beside;

/// How often a transaction is begun anew because the file became quiet in between.
const TRIES: usize = 3;

/// Brings the log onto the disk. Tests have one of their own.
pub trait LogSync: fmt::Debug + Send + Sync {
    /// When it returns, all that was written to the log before is on the disk.
    fn sync(&self, log: &File, path: &Path) -> io::Result<()>;
}

/// By the system's own sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskSync;

impl LogSync for DiskSync {
    fn sync(&self, log: &File, _: &Path) -> io::Result<()> {
        log.sync_data()
    }
}

/// The log of an open connection. SQLite has no locks on it, so it may be opened and closed beside SQLite.
#[derive(Debug)]
pub(super) struct Wal {
    path: PathBuf,
    file: File,
}

impl Wal {
    /// Of a connection that has read something, so that there is a log.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let path = beside(file, "-wal");
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path)?;
        Ok(Self { path, file })
    }

    pub(super) fn sync(&self, how: &dyn LogSync) -> io::Result<()> {
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

/// What the log says goes into the file, and the log starts anew. False: others use it.
pub(super) fn start_anew(connection: &Connection) -> rusqlite::Result<bool> {
    // It is not cut off: an empty log beside a main file that needs one is a log that was lost.
    Ok(checkpoint(connection, "RESTART")? == Checkpoint::Whole)
}

fn generation(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT generation FROM file")?.query_row([], |row| row.get(0))
}

fn is_odd(generation: i64) -> bool {
    generation & 1 == 1
}

pub(super) fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Begins a transaction. `known` is the generation of which this connection knows that the main file has it; `may_write` is asked
/// in the transaction.
pub(super) fn begin(
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

/// Makes sure that the main file says that it needs its log.
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
        // Somebody has been reading for longer than we wait: the mark follows with the next checkpoint.
        tracing::debug!("a mailbox's main file cannot be marked yet: others read it");
    }
    Ok(now)
}

/// Moves all of the log into the main file, and lets the main file say so. False: others use the file; try again later.
pub(super) fn complete(connection: &Connection) -> rusqlite::Result<bool> {
    let before = data_version(connection)?;
    if checkpoint(connection, "PASSIVE")? == Checkpoint::Part {
        return Ok(false);
    }
    run(connection, "BEGIN IMMEDIATE")?;
    // Under the lock, so that nobody has written since the checkpoint.
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

/// Whether the main file needs a log that is not there. Asked before anything is written.
pub(super) fn is_lost(connection: &Connection, file: &Path) -> rusqlite::Result<bool> {
    let log = beside(file, "-wal");
    let before = generation(connection)?;
    // SQLite has made an empty one if there was none.
    if !is_odd(before) || fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Ok(false);
    }
    // Somebody who completes the file says so before he empties the log.
    Ok(generation(connection)? == before)
}

/// The main file is all there is: it says so from now on.
pub(super) fn accept_loss(connection: &Connection) -> rusqlite::Result<()> {
    run(connection, "UPDATE file SET generation = generation + 1 WHERE generation % 2 = 1")
}
