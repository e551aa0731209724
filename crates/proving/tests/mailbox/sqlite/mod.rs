//! The SQLite backend as the suite wants it: a file of its own, with a clock that can jump. And what only it has to survive.

mod child;
mod clocks;
mod cuts;
mod failures;
mod formats;
mod kills;
mod load;
mod wakeups;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MailboxError, SqliteMailbox};
use snakepit_proving::deadline::{Deadline, recheck};
use snakepit_proving::mailbox::{Fixture, JumpClock};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Runs something that waits for the mailbox.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn dir() -> TempDir {
    TempDir::new().expect("a directory")
}

/// Waits until the last writer has closed the file: then its log is gone.
fn until_closed(path: &Path) {
    let log = format!("{}-wal", path.display());
    recheck(Deadline::patient(), "the file is closed", || (!Path::new(&log).exists()).then_some(()));
}

/// What takes longer than this is jumped over.
const LONG: Duration = Duration::from_secs(10);

pub(crate) struct Sqlite {
    dir: TempDir,
    clock: Arc<JumpClock>,
    /// The rules of each mailbox, which are not in the file.
    policies: Mutex<HashMap<String, DeadLetterPolicy>>,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        Self {
            dir: TempDir::new().expect("a directory"),
            clock: Arc::new(JumpClock::new()),
            policies: Mutex::default(),
        }
    }

    fn options(&self, name: &str) -> SqliteOptions {
        let policy = self.policies.lock().expect("nobody panics here").get(name).cloned().unwrap_or_default();
        SqliteOptions::new().queue(name).clock(Arc::clone(&self.clock) as _).policy(policy)
    }
}

impl Fixture for Sqlite {
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        policy: DeadLetterPolicy,
    ) -> BoxFuture<'a, Result<Arc<dyn Mailbox>, MailboxError>> {
        Box::pin(async move {
            self.policies.lock().expect("nobody panics here").insert(name.into(), policy);
            let mailbox = self.options(name).open(self.dir.path().join("mail"))?;
            Ok(Arc::new(mailbox) as Arc<dyn Mailbox>)
        })
    }

    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> BoxFuture<'a, Arc<dyn Mailbox>> {
        Box::pin(async move {
            // Nobody closes it in good order, as nobody does after a kill: this is what is on the disk at this moment.
            let left = self.dir.path().join("left");
            for suffix in ["", "-wal"] {
                let from = self.dir.path().join(format!("mail{suffix}"));
                fs::copy(from, format!("{}{suffix}", left.display())).expect("a copy");
            }
            let opened: SqliteMailbox = self.options(mailbox.name()).open(left).expect("the mailbox again");
            Arc::new(opened) as Arc<dyn Mailbox>
        })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if time > LONG {
                self.clock.pass(time);
            } else {
                tokio::time::sleep(time).await;
            }
        })
    }

    fn unit(&self) -> Duration {
        Duration::from_millis(150)
    }

    fn patience(&self) -> Duration {
        Duration::MAX
    }
}
