//! What the loops work with: two mailboxes of one kind, and a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use snakepit::custody::Config;
use snakepit::mailbox::{Mailbox, PostOffice, Send, SqliteMailbox};
use snakepit::{Pool, PythonWorker, Snakepit};
use snakepit_proving::bench::Outcome;
use tempfile::TempDir;

/// How many calls are in flight for each worker.
pub(crate) const WINDOW: usize = 64;
pub(crate) const WORKERS: usize = 2;
pub(crate) const BODY: &[u8] = br#"{"a": 1, "b": 2}"#;

/// Where messages are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
        }
    }

    /// How many receivers get the most out of a mailbox alone.
    pub(crate) fn receivers(self) -> usize {
        match self {
            Self::Memory => 1,
            Self::Sqlite => 8,
        }
    }
}

/// Requests, and replies to them.
pub(crate) struct Post {
    pub(crate) requests: Arc<dyn Mailbox>,
    pub(crate) replies: Arc<dyn Mailbox>,
    _dir: TempDir,
}

impl Post {
    pub(crate) fn new(kind: Kind) -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let (requests, replies): (Arc<dyn Mailbox>, Arc<dyn Mailbox>) = match kind {
            Kind::Memory => {
                let office = PostOffice::new();
                (Arc::new(office.mailbox("requests")), Arc::new(office.mailbox("replies")))
            }
            Kind::Sqlite => {
                let file = dir.path().join("mail.db");
                let open = |name| SqliteMailbox::open_named(&file, name);
                (Arc::new(open("requests")?), Arc::new(open("replies")?))
            }
        };
        Ok(Self { requests, replies, _dir: dir })
    }

    /// Sends the same message so many times; the last one asks for a reply, which tells that all have been begun.
    pub(crate) async fn fill(&self, messages: usize) -> Outcome<()> {
        let mut left = messages;
        while left > 0 {
            let some = left.min(1_000);
            left -= some;
            let mut batch = vec![(BODY.to_vec(), Send::new()); some];
            if left == 0
                && let Some(last) = batch.last_mut()
            {
                last.1 = Send::new().reply_to("replies");
            }
            self.requests.send_all(batch).await?;
        }
        Ok(())
    }
}

/// A pool that is ready, with a state directory of its own.
pub(crate) struct Crew {
    pub(crate) pit: Snakepit,
    _home: TempDir,
}

impl Crew {
    /// `concurrency`: how many calls each worker takes at the same time.
    pub(crate) async fn start(worker: &str, concurrency: usize) -> Outcome<Self> {
        let home = tempfile::tempdir()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench_loops").join(worker);
        let mut worker = PythonWorker::new(script);
        if let Some(python) = python()? {
            worker = worker.interpreter(python);
        }
        let pool = Pool::python(worker).workers(WORKERS).concurrency(concurrency).queue_limit(1 << 20);
        let custody = Config { state_dir: Some(home.path().to_owned()), ..Config::default() };
        let pit = Snakepit::builder().pool(pool).custody(custody).start().await?;
        Ok(Self { pit, _home: home })
    }
}

/// `SNAKEPIT_BENCH_PYTHON`, else the environment that `bench-venv` makes beside the build, else none.
fn python() -> Outcome<Option<PathBuf>> {
    if let Some(path) = std::env::var_os("SNAKEPIT_BENCH_PYTHON") {
        return Ok(Some(path.into()));
    }
    let exe = std::env::current_exe()?;
    let venv = exe.ancestors().nth(2).map(|target| target.join("bench-venv/bin/python"));
    Ok(venv.filter(|path| path.exists()))
}
