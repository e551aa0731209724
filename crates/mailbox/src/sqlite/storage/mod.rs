//! The file: where it is, how it is opened, and whether it is still the same file.
//!
//! Owns everything on disk. Must not know messages or callers.
//!
//! Opening a file passes `ownership` (checks that the file belongs to this user), this file, `lock_wait`
//! (waits for the locks of other processes) and `schema` (the format). A commit passes `wal` (the log).
//! `maintenance` copies and shrinks the file, and `lock_holder` names the process that keeps it locked.

pub(crate) mod lock_holder;
pub(crate) mod lock_wait;
pub(crate) mod maintenance;
pub(crate) mod ownership;
pub(crate) mod schema;
pub(crate) mod wal;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use lock_wait::within;
use schema::FileKind;
use wal::LogSync;

use super::error::OperationError;
use super::stored_time::{Micros, micros};
use crate::clock::Clock;
use crate::{BackendErrorKind, MailboxError};

/// The number of prepared statements to cache, larger than the number of statements.
const CACHED_STATEMENTS: usize = 64;
/// SQLite truncates the log to this size when it starts the log again.
const LONGEST_LOG: i64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct DatabaseFile {
    /// The absolute path without symbolic links, so that one file has one path.
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long an operation waits for the locks of other processes.
    pub(crate) lock_timeout: Duration,
    pub(crate) vfs: Option<String>,
    pub(crate) log_sync: Arc<dyn LogSync>,
    pub(crate) lost_log: LostLog,
    pub(crate) creation: Creation,
}

/// Whether a file is opened if its log is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LostLog {
    Refuse,
    /// The file is opened without its log.
    Accept,
}

/// Whether to create a missing file or queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Creation {
    #[default]
    IfMissing,
    Never,
}

/// The identity of a file, independent of its name: device and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode(u64, u64);

/// Returns the path with a suffix: a file beside another.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl DatabaseFile {
    /// Returns the absolute path of a file that may not exist yet.
    pub(crate) fn locate(path: &Path) -> Result<PathBuf, MailboxError> {
        let refuse = |error: std::io::Error| {
            let reason =
                format!("{} cannot be opened: its directory must exist and be readable", path.display());
            MailboxError::backend_caused(BackendErrorKind::NoAccess, reason, error)
        };
        ownership::check_link(path)?;
        if path.exists() {
            return path.canonicalize().map_err(refuse);
        }
        let Some(name) = path.file_name() else {
            return Err(MailboxError::backend(
                BackendErrorKind::NoAccess,
                format!("{} does not end in the name of a file: add one, such as mail.db", path.display()),
            ));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(parent.canonicalize().map_err(refuse)?.join(name))
    }

    pub(crate) fn missing(&self, queue: &str) -> MailboxError {
        MailboxError::Missing(format!("{queue} in {}", self.path.display()))
    }

    pub(crate) fn now(&self) -> Micros {
        micros(self.clock.since_boot())
    }

    pub(crate) fn inode(&self) -> Option<Inode> {
        fs::metadata(&self.path).ok().map(|file| Inode(file.dev(), file.ino()))
    }

    fn no_file(&self) -> MailboxError {
        MailboxError::Missing(self.path.display().to_string())
    }

    /// Opens the file, or creates it. Changes nothing in a file that is not a mailbox.
    pub(crate) fn connect(&self) -> Result<Connection, MailboxError> {
        within(self.lock_timeout, || self.connect_in_time())
    }

    fn connect_in_time(&self) -> Result<Connection, MailboxError> {
        let began = self.clock.since_boot();
        loop {
            match self.try_connect() {
                // SQLite does not call the busy handler if two processes create the file at the same time.
                Err(OperationError::Sql(error))
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && self.clock.since_boot().saturating_sub(began) < self.lock_timeout =>
                {
                    std::thread::yield_now();
                }
                result => return result.map_err(|error| error.explain(&self.path)),
            }
        }
    }

    fn try_connect(&self) -> Result<Connection, OperationError> {
        let may_create = match self.creation {
            Creation::IfMissing => OpenFlags::SQLITE_OPEN_CREATE,
            Creation::Never if self.path.exists() => OpenFlags::empty(),
            Creation::Never => return Err(self.no_file().into()),
        };
        // Only one thread at a time uses the connection, so SQLite needs no mutex. URIs stay disabled: a path
        // is only a path.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | may_create | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = match &self.vfs {
            None => {
                ownership::prepare(&self.path)?;
                Connection::open_with_flags(&self.path, flags)?
            }
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str())?,
        };
        connection.busy_handler(Some(lock_wait::wait))?;
        // By default, closing moves the log into the file and removes the log by its name. Only the writer
        // knows when that is safe.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Code in the schema is never trusted.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        // Query plans must not depend on bound values. Otherwise SQLite would plan each `LIMIT ?` again at
        // every use.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let file = self.path.display();
        let refused = |kind, reason: String| Err(MailboxError::backend(kind, reason).into());
        let foreign = |reason| refused(BackendErrorKind::Foreign, reason);
        let kind = schema::kind(&connection)?;
        match kind {
            FileKind::Empty if self.creation == Creation::Never => return Err(self.no_file().into()),
            FileKind::Empty | FileKind::Mailbox => {}
            FileKind::Newer(version) => {
                return foreign(format!(
                    "{file} was written by a newer version of this program (its format is {version}, known here are 1 to \
                     {}): update this program",
                    schema::VERSION
                ));
            }
            FileKind::Programmed => {
                return foreign(format!(
                    "{file} has triggers or views, which no mailbox has, so another program has changed it: name another file, \
                     or restore a backup"
                ));
            }
            FileKind::Foreign => {
                return foreign(format!("{file} is a SQLite file of another program: name another file"));
            }
        }
        if connection.is_readonly("main")? {
            return refused(
                BackendErrorKind::NoAccess,
                format!(
                    "{file} cannot be written: give this user write permission for the file and its directory"
                ),
            );
        }
        if kind == FileKind::Empty {
            // This can be configured only in a file without tables.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        // SQLite uses a journal to switch to the log. The journal must not reappear after a power cut: it
        // would undo the switch and everything in the log.
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return refused(
                BackendErrorKind::Other,
                format!("{file} cannot have a write-ahead log (its mode is {mode}): keep it on a local disk"),
            );
        }
        // A commit does not sync the log: the writer does that after the commit, when the file is no longer
        // locked. Checkpoints sync both the log and the file.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.query_row(&format!("PRAGMA journal_size_limit = {LONGEST_LOG}"), [], |_| Ok(()))?;
        connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        if self.needs_a_lost_log(&connection)? {
            match self.lost_log {
                LostLog::Refuse => return refused(BackendErrorKind::Damaged, lost_log(&self.path)),
                LostLog::Accept => wal::accept_loss(&connection)?,
            }
        }
        schema::upgrade(&mut connection, &schema::STEPS, self.clock.as_ref())?;
        if self.vfs.is_none() {
            ownership::secure(&self.path)?;
        }
        Ok(connection)
    }

    /// Opens a second connection that reads the file while the writer uses it.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match &self.vfs {
            None => Connection::open_with_flags(&self.path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str())?,
        };
        connection.busy_timeout(self.lock_timeout)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        Ok(connection)
    }

    fn needs_a_lost_log(&self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(schema::has_generation(connection)? && wal::is_lost(connection, &self.path)?)
    }
}

fn lost_log(path: &Path) -> String {
    let file = path.display();
    format!(
        "{file} needs its log {file}-wal, which is missing or empty: the file was copied or moved without it, or the log was \
         removed, and the latest messages were only there. Put the log back beside the file; or continue without it: \
         `snakepit mailbox recover sqlite:{file}`. To copy a mailbox that is in use: `snakepit mailbox backup`"
    )
}
