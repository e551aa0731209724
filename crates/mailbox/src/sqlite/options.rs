//! The options for opening a mailbox in a file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::explain;
use super::storage::wal::{DiskSync, LogSync};
use super::storage::{Creation, DatabaseFile, LostLog};
use super::writer::handle::WriterHandle;
use super::{DEFAULT_QUEUE, SqliteMailbox};
use crate::clock::{BootClock, Clock};
use crate::{DeadLetterPolicy, MailboxError};
use snakepit_settings::setters;

/// Options for opening a mailbox in a file.
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::mailbox::MailboxError;
/// use snakepit::mailbox::sqlite::SqliteOptions;
///
/// # fn example() -> Result<(), MailboxError> {
/// let options = SqliteOptions::new().queue("orders").busy_timeout(Duration::from_secs(30));
/// // A wrong name is an error. Without `existing`, it would be a new, empty mailbox.
/// let orders = options.existing().open("mail.db")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    queue: String,
    policy: DeadLetterPolicy,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
    vfs: Option<String>,
    log_sync: Arc<dyn LogSync>,
    lost_log: LostLog,
    creation: Creation,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            queue: DEFAULT_QUEUE.into(),
            policy: DeadLetterPolicy::default(),
            busy_timeout: Duration::from_secs(5),
            clock: Arc::new(BootClock),
            vfs: None,
            log_sync: Arc::new(DiskSync),
            lost_log: LostLog::Refuse,
            creation: Creation::IfMissing,
        }
    }
}

impl SqliteOptions {
    /// Creates the default options: the queue `main` with its own delivery limit, and at most five seconds of
    /// waiting for the locks of other processes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the file even if its log is lost. Messages that were only in the log are lost for good.
    pub fn accept_lost_log(mut self) -> Self {
        self.lost_log = LostLog::Accept;
        self
    }

    /// Opens only an existing file and queue. If one of them is missing, opening fails with
    /// [`MailboxError::Missing`].
    pub fn existing(mut self) -> Self {
        self.creation = Creation::Never;
        self
    }

    /// Opens `sqlite:PATH` or `sqlite:PATH#QUEUE`.
    pub fn open_url(mut self, url: &str) -> Result<SqliteMailbox, MailboxError> {
        let refused = || MailboxError::out_of_range("url", url, "sqlite:PATH or sqlite:PATH#QUEUE");
        let rest = url.strip_prefix("sqlite:").ok_or_else(refused)?;
        let (path, queue) = rest.split_once('#').map_or((rest, None), |(path, queue)| (path, Some(queue)));
        if path.is_empty() || queue.is_some_and(str::is_empty) {
            return Err(refused());
        }
        if let Some(queue) = queue {
            queue.clone_into(&mut self.queue);
        }
        self.open(path)
    }

    fn file(self, path: &Path) -> Result<DatabaseFile, MailboxError> {
        Ok(DatabaseFile {
            path: DatabaseFile::locate(path)?,
            clock: self.clock,
            lock_timeout: self.busy_timeout,
            vfs: self.vfs,
            log_sync: self.log_sync,
            lost_log: self.lost_log,
            creation: self.creation,
        })
    }

    /// Returns the names of the queues in a file, in the order of their creation.
    pub fn queue_names(self, path: impl AsRef<Path>) -> Result<Vec<String>, MailboxError> {
        let file = self.file(path.as_ref())?;
        let connection = file.connect()?;
        let names = || {
            let mut names = connection.prepare("SELECT name FROM queue ORDER BY number")?;
            names.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        names().map_err(|error| explain(&file.path, error))
    }

    /// Opens the file, or creates it. Upgrades a file of an older version. Reads and writes a little, on the
    /// calling thread.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteMailbox, MailboxError> {
        self.policy.check()?;
        let (queue, change): (Arc<str>, _) = (self.queue.as_str().into(), self.policy.settings_change());
        let writer = WriterHandle::of(self.file(path.as_ref())?, &queue, &change)?;
        let closed = writer.open_queues.open(&queue);
        Ok(SqliteMailbox { queue, writer, closed })
    }
}

setters! {
    impl SqliteOptions;

    /// Selects the queue of the file.
    queue(name: impl Into<String>) = name.into();

    /// Sets when messages are given up. A delivery limit is written to the queue's settings, and so applies
    /// to everybody who uses the queue. Without one, the queue keeps its limit.
    policy(policy: DeadLetterPolicy) = policy;

    /// Sets how long another process may keep the file locked before an operation fails with
    /// [`MailboxError::Busy`]. Like the clock, it is decided by the first handle of a process that opens the
    /// file.
    busy_timeout(time: Duration) = time;

    /// Sets the clock that the mailbox reads.
    clock(clock: Arc<dyn Clock>) = clock;

    /// Reads and writes the file through the VFS of this name. It must be registered with SQLite before.
    vfs(name: impl Into<String>) = Some(name.into());

    /// Sets how the log is synced to disk.
    log_sync(sync: Arc<dyn LogSync>) = sync;
}
