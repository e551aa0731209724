//! The file as a whole: its size, its backup, and the space that it gives back to the disk.
//!
//! Deleted messages leave free pages in the file, which later messages use. When the file is idle, the writer
//! gives most free pages back to the disk, a few at a time. A file of version 1 can do that only after it was
//! compacted once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::lock_wait::within;
use super::{DatabaseFile, beside, ownership, wal};
use crate::sqlite::error::explain;
use crate::sqlite::operation::{Operation, OperationOutput};
use crate::sqlite::{SqliteMailbox, output};
use crate::{BackendErrorKind, MailboxError};

/// How many free pages stay in the file for later messages.
const KEPT: i64 = 256;
/// How many pages are given back at once. An operation may have to wait that long.
const STEP: i64 = 256;

/// The size of a mailbox's file, which all of its queues share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct FileSize {
    /// The size of the main file.
    pub bytes: u64,
    /// The free part of the main file, which later messages use.
    pub free_bytes: u64,
    /// The size of the log beside the main file.
    pub log_bytes: u64,
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

/// Returns the size of the file without its log.
pub(crate) fn size(connection: &Connection) -> rusqlite::Result<FileSize> {
    let page = pragma(connection, "page_size")?;
    let bytes = (page * pragma(connection, "page_count")?) as u64;
    let free_bytes = (page * pragma(connection, "freelist_count")?) as u64;
    Ok(FileSize { bytes, free_bytes, log_bytes: 0 })
}

/// Gives some free pages back to the disk. Reports whether there are more to give back.
pub(crate) fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    let spare = pragma(connection, "freelist_count")? - KEPT;
    // 2 means incremental: free pages can be given back.
    if spare <= 0 || pragma(connection, "auto_vacuum")? != 2 {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({})", spare.min(STEP)))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(spare > STEP)
}

impl SqliteMailbox {
    /// Returns the size of the file.
    pub async fn file_size(&self) -> Result<FileSize, MailboxError> {
        let size = output!(self, Operation::Size, Size)?;
        let log_bytes = fs::metadata(beside(self.path(), "-wal")).map_or(0, |log| log.len());
        Ok(FileSize { log_bytes, ..size })
    }

    /// Copies all queues of the file, as they are at one moment, into a new file that only its owner can
    /// read. The mailbox stays in use meanwhile. If the new file exists already, returns an error and changes
    /// nothing.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), MailboxError> {
        let (file, to) = (Arc::clone(self.writer.file()), to.as_ref().to_owned());
        in_background(move || backup(&file, &to)).await
    }

    /// Rewrites the file without free pages. All writers wait until that is done, so do it at a quiet time.
    /// From then on, a file of version 1 also gives space back by itself.
    pub async fn compact(&self) -> Result<(), MailboxError> {
        let file = Arc::clone(self.writer.file());
        in_background(move || compact(&file)).await
    }
}

async fn in_background(
    act: impl FnOnce() -> Result<(), MailboxError> + Send + 'static,
) -> Result<(), MailboxError> {
    let failed = |error| {
        MailboxError::backend_caused(
            BackendErrorKind::Io,
            "the work on the mailbox's file was interrupted",
            error,
        )
    };
    tokio::task::spawn_blocking(act).await.map_err(failed)?
}

fn backup(file: &DatabaseFile, to: &Path) -> Result<(), MailboxError> {
    let to = DatabaseFile::locate(to)?;
    let failed = |error: std::io::Error| {
        let reason = format!(
            "{} cannot be written: its directory must exist, be writable and have room, and the file must not exist yet",
            to.display()
        );
        MailboxError::backend_caused(BackendErrorKind::Io, reason, error)
    };
    if fs::symlink_metadata(&to).is_ok() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    // The copy gets its name only when it is complete.
    let partial = PartialFile(beside(&to, &format!(".partial-{}", std::process::id())));
    drop(ownership::open_own(&partial.0).map_err(failed)?);
    copy_into(file, &partial.0).map_err(|error| explain(&file.path, error))?;
    File::open(&partial.0).and_then(|file| file.sync_all()).map_err(failed)?;
    // Unlike a rename, a hard link never replaces a file that was created meanwhile.
    fs::hard_link(&partial.0, &to).map_err(failed)?;
    drop(partial);
    let parent = to.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// An incomplete file. It is removed on drop.
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn copy_into(file: &DatabaseFile, to: &Path) -> rusqlite::Result<()> {
    let name = to.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(to.to_owned()))?;
    file.reader()?.execute("VACUUM INTO ?1", [name])?;
    // The copy is complete without a log, whatever the generation of the original says.
    let copy = Connection::open(to)?;
    wal::accept_loss(&copy)
}

fn compact(file: &DatabaseFile) -> Result<(), MailboxError> {
    let connection = file.connect()?;
    let act = || -> rusqlite::Result<()> {
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; VACUUM")?;
        wal::complete(&connection).map(drop)
    };
    within(file.lock_timeout, act).map_err(|error| explain(&file.path, error))
}
