//! How a mailbox is opened, and the one writer that each file has in a process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::clock::{BootClock, Clock};
use super::desk::register;
use super::failure::explain;
use super::inbox::Inbox;
use super::patience::within;
use super::site::{Creation, Inode, LostLog, Site};
use super::wal::{DiskSync, LogSync};
use super::writer::Writer;
use super::{DEFAULT_QUEUE, SqliteMailbox};
use crate::custody::without_file_size_signal;
use crate::mailbox::{DeadLetterPolicy, MailboxError, SettingsChange};

/// How a mailbox in a file is opened.
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
    /// The queue `main`, five deliveries, five seconds of patience.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which queue of the file.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// When messages are given up. A limit of deliveries is written to the queue's settings, for all who use it; without one the
    /// queue keeps the limit that it has.
    pub fn policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How long another process may keep the file locked before an operation fails with [`MailboxError::Busy`]. As for the
    /// clock, the first of a process who opens the file decides.
    pub fn busy_timeout(mut self, time: Duration) -> Self {
        self.busy_timeout = time;
        self
    }

    /// Reads the time there.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Reads and writes through a file layer of this name, which was registered with SQLite before.
    pub fn vfs(mut self, name: impl Into<String>) -> Self {
        self.vfs = Some(name.into());
        self
    }

    /// Brings the log onto the disk with this.
    pub fn log_sync(mut self, sync: Arc<dyn LogSync>) -> Self {
        self.log_sync = sync;
        self
    }

    /// Opens also a file whose log was lost, with what the file has. What was only in the log is gone for good.
    pub fn accept_lost_log(mut self) -> Self {
        self.lost_log = LostLog::Accept;
        self
    }

    /// Makes neither the file nor the queue: what is missing is [`MailboxError::Missing`].
    pub fn existing(mut self) -> Self {
        self.creation = Creation::Never;
        self
    }

    /// Opens `sqlite:PATH` or `sqlite:PATH#QUEUE`.
    pub fn open_url(mut self, url: &str) -> Result<SqliteMailbox, MailboxError> {
        let refused = || MailboxError::OutOfRange {
            option: "url",
            value: url.to_owned(),
            range: "sqlite:PATH or sqlite:PATH#QUEUE".into(),
        };
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

    fn site(self, path: &Path) -> Result<Site, MailboxError> {
        Ok(Site {
            path: Site::locate(path)?,
            clock: self.clock,
            patience: self.busy_timeout,
            vfs: self.vfs,
            log_sync: self.log_sync,
            lost_log: self.lost_log,
            creation: self.creation,
        })
    }

    /// The names of the mailboxes in a file, in the order in which they were made.
    pub fn queue_names(self, path: impl AsRef<Path>) -> Result<Vec<String>, MailboxError> {
        let site = self.site(path.as_ref())?;
        let connection = site.connect()?;
        let names = || {
            let mut names = connection.prepare("SELECT name FROM queue ORDER BY number")?;
            names.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        names().map_err(|error| explain(&site.path, error))
    }

    /// Opens the file, or makes it. A file of an older version is brought to the newest one. Reads and writes a little, on this thread.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteMailbox, MailboxError> {
        self.policy.check()?;
        let (queue, change): (Arc<str>, _) = (self.queue.as_str().into(), self.policy.settings_change());
        let office = Office::of(self.site(path.as_ref())?, &queue, &change)?;
        let gate = office.gates.open(&queue);
        Ok(SqliteMailbox { queue, office, gate })
    }
}

/// All that this process has of a file. Its writer ends with the last who holds it.
pub(super) struct Office {
    site: Arc<Site>,
    inode: Option<Inode>,
    inbox: Arc<Inbox>,
    gates: Arc<Gates>,
}

/// Says whether a queue was closed here.
pub(super) type Gate = Arc<watch::Sender<bool>>;

/// The queues of a file that are open in this process. Those who open the same one close it together.
#[derive(Default)]
pub(super) struct Gates {
    gates: Mutex<HashMap<Arc<str>, Weak<watch::Sender<bool>>>>,
}

impl Gates {
    /// Whoever opens a closed one gets a new one.
    fn open(&self, queue: &Arc<str>) -> Gate {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| gate.strong_count() > 0);
        let known = gates.get(queue).and_then(Weak::upgrade).filter(|gate| !*gate.borrow());
        known.unwrap_or_else(|| {
            let gate = Arc::new(watch::Sender::new(false));
            gates.insert(Arc::clone(queue), Arc::downgrade(&gate));
            gate
        })
    }

    /// Whether it was closed here. What nobody here has opened is not.
    pub(super) fn is_closed(&self, queue: &str) -> bool {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.get(queue).and_then(Weak::upgrade).is_some_and(|gate| *gate.borrow())
    }
}

/// How long the last handle waits until the file is closed.
const CLOSING: Duration = Duration::from_secs(5);

impl Drop for Office {
    /// Waits until the file is closed, so that a process that ends right after this leaves one whole file.
    fn drop(&mut self) {
        self.inbox.end();
        self.inbox.closed(CLOSING);
    }
}

impl Office {
    pub(super) fn path(&self) -> &Path {
        &self.site.path
    }

    pub(super) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The one that there is, or a new one. The queue is known in the file from now on, so that replies find it.
    fn of(site: Site, queue: &str, change: &SettingsChange) -> Result<Arc<Self>, MailboxError> {
        static OFFICES: Mutex<Option<HashMap<PathBuf, Weak<Office>>>> = Mutex::new(None);
        let open = || {
            let connection = site.connect()?;
            register(&connection, &site, queue, change)?;
            Ok(connection)
        };
        let connection = without_file_size_signal(|| within(site.patience, open))?;
        let inode = site.inode();
        let mut offices = OFFICES.lock().unwrap_or_else(PoisonError::into_inner);
        let offices = offices.get_or_insert_default();
        offices.retain(|_, office| office.strong_count() > 0);
        let known = offices.get(&site.path).and_then(Weak::upgrade);
        if let Some(office) = known.filter(|office| office.inode == inode && !office.inbox.is_deserted()) {
            return Ok(office);
        }
        let site = Arc::new(site);
        let failed = |error: std::io::Error| MailboxError::Backend {
            reason: format!("the writer of {} cannot be started", site.path.display()),
            source: Some(Arc::new(error)),
        };
        let inbox = Arc::new(Inbox::new().map_err(failed)?);
        let gates = Arc::new(Gates::default());
        let writer = Writer::new(Arc::clone(&site), Arc::clone(&inbox), Arc::clone(&gates), connection);
        std::thread::Builder::new().name("mailbox".into()).spawn(move || writer.run()).map_err(failed)?;
        let office = Arc::new(Self { site, inode, inbox, gates });
        offices.insert(office.site.path.clone(), Arc::downgrade(&office));
        Ok(office)
    }
}
