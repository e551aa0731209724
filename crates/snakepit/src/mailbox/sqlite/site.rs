//! The file: where it is, how it is opened, and whether it still is what it was.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::clock::Clock;
use super::failure::explain;
use super::patience::{self, within};
use super::private;
use super::schema::{self, Kind};
use super::wal::{self, LogSync};
use crate::mailbox::MailboxError;

/// How many prepared statements are kept: more than there are different ones.
const STATEMENTS: usize = 64;
/// The log is cut down to this when it starts anew.
const LONGEST_LOG: i64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Site {
    /// Absolute, without links: the same file has the same one.
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    /// How long others may keep it locked.
    pub(super) patience: Duration,
    pub(super) vfs: Option<String>,
    pub(super) log_sync: Arc<dyn LogSync>,
    pub(super) lost_log: LostLog,
    pub(super) creation: Creation,
}

/// What becomes of a file that needs a log which is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LostLog {
    Refuse,
    /// It is opened with what it has.
    Accept,
}

/// Whether a mailbox that is missing is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Creation {
    /// It is.
    #[default]
    IfMissing,
    /// It is said to be missing.
    Never,
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inode(u64, u64);

/// A file beside another.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn backend(reason: String) -> MailboxError {
    MailboxError::Backend { reason, source: None }
}

impl Site {
    /// The absolute path of a file that may not exist yet.
    pub(super) fn locate(path: &Path) -> Result<PathBuf, MailboxError> {
        let refuse = |error: std::io::Error| MailboxError::Backend {
            reason: format!("{} cannot be opened: its directory must exist and be readable", path.display()),
            source: Some(Arc::new(error)),
        };
        private::link(path)?;
        if path.exists() {
            return path.canonicalize().map_err(refuse);
        }
        let Some(name) = path.file_name() else {
            return Err(backend(format!("{} names no file", path.display())));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(parent.canonicalize().map_err(refuse)?.join(name))
    }

    /// There is no such queue here.
    pub(super) fn missing(&self, queue: &str) -> MailboxError {
        MailboxError::Missing(format!("{queue} in {}", self.path.display()))
    }

    pub(super) fn inode(&self) -> Option<Inode> {
        fs::metadata(&self.path).ok().map(|file| Inode(file.dev(), file.ino()))
    }

    fn no_file(&self) -> MailboxError {
        MailboxError::Missing(self.path.display().to_string())
    }

    /// Opens the file, or makes it. What is no mailbox is left as it is.
    pub(super) fn connect(&self) -> Result<Connection, MailboxError> {
        within(self.patience, || self.connect_in_time())
    }

    fn connect_in_time(&self) -> Result<Connection, MailboxError> {
        let began = self.clock.since_boot();
        loop {
            match self.try_connect() {
                // Two who make the same file at the same time are refused at once, not made to wait.
                Err(Refused::Sql(error))
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && self.clock.since_boot().saturating_sub(began) < self.patience =>
                {
                    std::thread::yield_now();
                }
                Err(Refused::Sql(error)) => return Err(explain(&self.path, error)),
                Err(Refused::Known(error)) => return Err(error),
                Ok(connection) => return Ok(connection),
            }
        }
    }

    fn try_connect(&self) -> Result<Connection, Refused> {
        let may_create = match self.creation {
            Creation::IfMissing => OpenFlags::SQLITE_OPEN_CREATE,
            Creation::Never if self.path.exists() => OpenFlags::empty(),
            Creation::Never => return Err(Refused::Known(self.no_file())),
        };
        // One thread at a time uses it, so it needs no locks of its own. And no URIs: a path is a path.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | may_create | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = match &self.vfs {
            None => {
                private::prepare(&self.path).map_err(Refused::Known)?;
                Connection::open_with_flags(&self.path, flags)?
            }
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str())?,
        };
        connection.busy_handler(Some(patience::wait))?;
        // Closing moves the log into the file and removes it, by name. Only the writer knows when that is right.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // What stands in the schema is not believed, whoever wrote it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        let file = self.path.display();
        let kind = schema::kind(&connection)?;
        match kind {
            Kind::Empty if self.creation == Creation::Never => return Err(Refused::Known(self.no_file())),
            Kind::Empty | Kind::Mailbox => {}
            Kind::Newer(version) => {
                return Err(Refused::Known(backend(format!(
                    "{file} was written by a newer version of this program (its format is {version}, known here are 1 to \
                     {}): update this program",
                    schema::VERSION
                ))));
            }
            Kind::Programmed => {
                return Err(Refused::Known(backend(format!(
                    "{file} has triggers or views, which no mailbox has: somebody has changed it; name another file, or \
                     put a copy back"
                ))));
            }
            Kind::Foreign => {
                return Err(Refused::Known(backend(format!(
                    "{file} is a SQLite file of another program: name another file"
                ))));
            }
        }
        if connection.is_readonly("main")? {
            return Err(Refused::Known(backend(format!(
                "{file} cannot be written: give this user the right to write the file and its directory"
            ))));
        }
        if kind == Kind::Empty {
            // Only a file without tables can be told to give pages back one day.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        // The change to a log is made with a journal, which must not come back after a power cut: it would undo the change, and
        // with it all that the log says.
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(Refused::Known(backend(format!(
                "{file} cannot have a write-ahead log (its mode is {mode}): keep it on a local disk"
            ))));
        }
        // A commit does not sync the log: the writer does, when the file is not locked any more. Checkpoints sync both.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.query_row(&format!("PRAGMA journal_size_limit = {LONGEST_LOG}"), [], |_| Ok(()))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        if self.needs_a_lost_log(&connection)? {
            match self.lost_log {
                LostLog::Refuse => return Err(Refused::Known(backend(lost_log(&self.path)))),
                LostLog::Accept => wal::accept_loss(&connection)?,
            }
        }
        schema::bring_up(&mut connection, &schema::STEPS, self.clock.as_ref())?;
        if self.vfs.is_none() {
            private::secure(&self.path).map_err(Refused::Known)?;
        }
        Ok(connection)
    }

    /// A connection that reads the file beside the writer's.
    pub(super) fn reader(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match &self.vfs {
            None => Connection::open_with_flags(&self.path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str())?,
        };
        connection.busy_timeout(self.patience)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        Ok(connection)
    }

    fn needs_a_lost_log(&self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(schema::has_generation(connection)? && wal::is_lost(connection, &self.path)?)
    }
}

/// For a person, with the way out.
fn lost_log(path: &Path) -> String {
    let file = path.display();
    format!(
        "{file} needs its log {file}-wal, which is missing or empty: the file was copied or moved without it, or the log was \
         removed, and the latest messages were only there. Put the log back beside the file; or go on with what the file has: \
         `snakepit mailbox recover sqlite:{file}`. To copy a mailbox that is in use: `snakepit mailbox backup`"
    )
}

enum Refused {
    Known(MailboxError),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}
