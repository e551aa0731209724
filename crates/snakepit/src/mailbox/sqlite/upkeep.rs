//! The file as a whole: how large it is, a copy of it, and the room that it gives back.
//!
//! What is deleted leaves free pages in the file, which the next messages use. When the file is idle, the writer gives most of
//! them back to the disk, a few at a time. A file of version 1 cannot do that before it was compacted once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::failure::explain;
use super::order::{Answer, Ask};
use super::site::Site;
use super::{SqliteMailbox, beside, private, unexpected, wal};
use crate::mailbox::MailboxError;

/// So many free pages are kept for the next messages.
const KEPT: i64 = 256;
/// And so many are given back at once, while somebody may already wait.
const STEP: i64 = 256;

/// How much room a mailbox's file takes. All of its queues share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct FileSize {
    /// The main file.
    pub bytes: u64,
    /// What of it is free: the next messages use it.
    pub free_bytes: u64,
    /// The log beside it.
    pub log_bytes: u64,
}

/// Pages of the file: how large each is, how many there are, and how many of them are free.
pub(super) fn pages(connection: &Connection) -> rusqlite::Result<FileSize> {
    let number = |name: &str| -> rusqlite::Result<u64> {
        let number: i64 = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?;
        Ok(number as u64)
    };
    let size = number("page_size")?;
    let (bytes, free_bytes) = (size * number("page_count")?, size * number("freelist_count")?);
    Ok(FileSize { bytes, free_bytes, log_bytes: 0 })
}

/// Gives some free pages back to the disk. Whether there are more to give.
pub(super) fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |name: &str| -> rusqlite::Result<i64> {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let spare = number("freelist_count")? - KEPT;
    // 2: it was made so that pages can be given back.
    if spare <= 0 || number("auto_vacuum")? != 2 {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({})", spare.min(STEP)))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(spare > STEP)
}

impl SqliteMailbox {
    /// How much room the file takes.
    pub async fn file_size(&self) -> Result<FileSize, MailboxError> {
        match self.ask(Ask::Size).await? {
            Answer::Size(size) => {
                let log_bytes = fs::metadata(beside(self.path(), "-wal")).map_or(0, |log| log.len());
                Ok(FileSize { log_bytes, ..size })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Copies all queues of the file, as they are at one moment, into a new file that only its owner can read. Others use the
    /// mailbox meanwhile. An existing file is left as it is, with an error.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), MailboxError> {
        let (site, to) = (Arc::clone(self.office.site()), to.as_ref().to_owned());
        in_background(move || backup(&site, &to)).await
    }

    /// Writes the file anew, without free pages. Everybody who writes waits meanwhile, so this is for quiet hours. A file of
    /// version 1 can give room back by itself from then on.
    pub async fn compact(&self) -> Result<(), MailboxError> {
        let site = Arc::clone(self.office.site());
        in_background(move || compact(&site)).await
    }
}

async fn in_background(
    act: impl FnOnce() -> Result<(), MailboxError> + Send + 'static,
) -> Result<(), MailboxError> {
    let failed = |error| MailboxError::Backend {
        reason: "the work on the mailbox's file was broken off".into(),
        source: Some(Arc::new(error)),
    };
    tokio::task::spawn_blocking(act).await.map_err(failed)?
}

fn backup(site: &Site, to: &Path) -> Result<(), MailboxError> {
    let to = Site::locate(to)?;
    let failed = |error: std::io::Error| MailboxError::Backend {
        reason: format!(
            "{} cannot be written: its directory must exist, be writable and have room, and the file must not exist yet",
            to.display()
        ),
        source: Some(Arc::new(error)),
    };
    if fs::symlink_metadata(&to).is_ok() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    // Under its name only when it is whole.
    let partial = Partial(beside(&to, &format!(".partial-{}", std::process::id())));
    drop(private::open_own(&partial.0).map_err(failed)?);
    copy_into(site, &partial.0).map_err(|error| explain(&site.path, error))?;
    File::open(&partial.0).and_then(|file| file.sync_all()).map_err(failed)?;
    // Unlike a rename, this never replaces what somebody has put there meanwhile.
    fs::hard_link(&partial.0, &to).map_err(failed)?;
    drop(partial);
    let parent = to.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// A file that is not whole yet, and is gone with this.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn copy_into(site: &Site, to: &Path) -> rusqlite::Result<()> {
    let name = to.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(to.to_owned()))?;
    site.reader()?.execute("VACUUM INTO ?1", [name])?;
    // The copy is all there is of it: it needs no log.
    let copy = Connection::open(to)?;
    wal::accept_loss(&copy)
}

fn compact(site: &Site) -> Result<(), MailboxError> {
    let connection = site.connect()?;
    let act = || -> rusqlite::Result<()> {
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; VACUUM")?;
        wal::complete(&connection).map(drop)
    };
    super::patience::within(site.patience, act).map_err(|error| explain(&site.path, error))
}
