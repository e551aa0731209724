//! What the loops work with: two mailboxes of one backend, and a pool.

use std::path::Path;
use std::sync::Arc;

use snakepit::Snakepit;
use snakepit::adapter::PythonWorker;
use snakepit::custody::CustodyOptions;
use snakepit::mailbox::{Mailbox, MemoryMailboxes, SendOptions, SqliteMailbox};
use snakepit_bench::{BenchResult, python};
use tempfile::TempDir;

/// The number of calls in flight per worker.
pub(crate) const WINDOW: usize = 64;
pub(crate) const WORKERS: usize = 2;
pub(crate) const BODY: &[u8] = br#"{"a": 1, "b": 2}"#;

/// The storage of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
        }
    }

    /// Returns the number of receivers with which the mailbox alone is fastest.
    pub(crate) fn receivers(self) -> usize {
        match self {
            Self::Memory => 1,
            Self::Sqlite => 8,
        }
    }
}

/// A mailbox for requests and one for their replies.
pub(crate) struct MailboxPair {
    pub(crate) requests: Arc<dyn Mailbox>,
    pub(crate) replies: Arc<dyn Mailbox>,
    _dir: TempDir,
}

impl MailboxPair {
    pub(crate) fn new(backend: Backend) -> BenchResult<Self> {
        let dir = tempfile::tempdir()?;
        let (requests, replies): (Arc<dyn Mailbox>, Arc<dyn Mailbox>) = match backend {
            Backend::Memory => {
                let office = MemoryMailboxes::new();
                (Arc::new(office.mailbox("requests")), Arc::new(office.mailbox("replies")))
            }
            Backend::Sqlite => {
                let file = dir.path().join("mail.db");
                let open = |name| SqliteMailbox::open_named(&file, name);
                (Arc::new(open("requests")?), Arc::new(open("replies")?))
            }
        };
        Ok(Self { requests, replies, _dir: dir })
    }

    /// Sends the same message `messages` times. The last one asks for a reply, which shows that all were started.
    pub(crate) async fn fill(&self, messages: usize) -> BenchResult<()> {
        let mut left = messages;
        while left > 0 {
            let some = left.min(1_000);
            left -= some;
            let mut batch = vec![(BODY.to_vec(), SendOptions::new()); some];
            if left == 0
                && let Some(last) = batch.last_mut()
            {
                last.1 = SendOptions::new().reply_to("replies");
            }
            self.requests.send_all(batch).await?;
        }
        Ok(())
    }
}

/// A pool that is ready, with its own state directory.
pub(crate) struct LoopPool {
    pub(crate) pit: Snakepit,
    _home: TempDir,
}

impl LoopPool {
    /// Starts the pool. Each worker takes `concurrency` calls at the same time.
    pub(crate) async fn start(worker: &str, concurrency: usize) -> BenchResult<Self> {
        let home = tempfile::tempdir()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/loops").join(worker);
        let mut worker = PythonWorker::new(script);
        if let Some(python) = python::environment()? {
            worker = worker.interpreter(python);
        }
        let pool = snakepit::python(worker).workers(WORKERS).concurrency(concurrency).queue_limit(1 << 20);
        let custody = CustodyOptions::default().state_dir(home.path());
        let pit = Snakepit::builder().pool(pool).custody(custody).start().await?;
        Ok(Self { pit, _home: home })
    }
}
