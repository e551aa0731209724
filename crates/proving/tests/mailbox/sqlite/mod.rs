//! The fixture of the SQLite backend, with a clock that can jump, and the tests that only this backend needs.
//!
//! About `crates/mailbox/src/sqlite/mod.rs`.

mod clocks;
mod failures;
mod formats;
mod kills;
mod load;
mod mailer_process;
mod one_file;
mod power_cuts;
mod telemetry;
mod wakeups;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, Pending, SqliteMailbox};
use snakepit::mailbox_conformance::{Fixture, model};
use snakepit_proving::deadline::{Deadline, recheck};
use snakepit_proving::mailbox_faults::SettableClock;
use snakepit_proving::{random, rounds};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// Runs a future that waits for the mailbox.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

fn dir() -> TempDir {
    TempDir::new().expect("a directory")
}

/// Waits until the last writer has closed the file, which removes its log.
fn until_closed(path: &Path) {
    let log = format!("{}-wal", path.display());
    recheck(Deadline::patient(), "the file is closed", || (!Path::new(&log).exists()).then_some(()));
}

/// The time above which the clock is moved instead of waiting.
const LONG: Duration = Duration::from_secs(10);

pub(crate) struct SqliteFixture {
    dir: TempDir,
    clock: Arc<SettableClock>,
    is_frozen: bool,
    /// The current path of the file.
    file: Mutex<PathBuf>,
}

impl SqliteFixture {
    pub(crate) fn new() -> Self {
        Self::with(SettableClock::new(), false)
    }

    /// Creates a fixture with a clock that moves only when the test moves it.
    pub(crate) fn frozen() -> Self {
        Self::with(SettableClock::frozen(), true)
    }

    fn with(clock: SettableClock, is_frozen: bool) -> Self {
        let dir = dir();
        let file = Mutex::new(dir.path().join("mail"));
        Self { dir, clock: Arc::new(clock), is_frozen, file }
    }

    fn options(&self, name: &str) -> SqliteOptions {
        SqliteOptions::new().queue(name).clock(Arc::clone(&self.clock) as _)
    }
}

/// Copies the file and its log. Its writer lives on and may move the log into the file meanwhile. Then both are copied
/// again.
fn copy_at_one_moment(file: &Path, left: &Path) {
    let main = loop {
        let main = fs::read(file).expect("the file");
        fs::copy(beside(file, "-wal"), beside(left, "-wal")).expect("a copy of the log");
        if fs::read(file).expect("the file") == main {
            break main;
        }
    };
    fs::write(left, main).expect("a copy of the file");
}

impl Fixture for SqliteFixture {
    fn open<'a>(&'a self, name: &'a str, policy: DeadLetterPolicy) -> Pending<'a, Arc<dyn Mailbox>> {
        Box::pin(async move {
            let options = self.options(name).policy(policy);
            let mailbox = options.open(self.file.lock().expect("the lock is not poisoned").as_path())?;
            Ok(Arc::new(mailbox) as Arc<dyn Mailbox>)
        })
    }

    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> Pending<'a, Arc<dyn Mailbox>> {
        Box::pin(async move {
            // As after a kill, the file is not closed properly. This is the state of the disk at this moment.
            let mut file = self.file.lock().expect("the lock is not poisoned");
            let left = self.dir.path().join(format!("mail {}", random::word()));
            copy_at_one_moment(&file, &left);
            for suffix in ["", "-wal", "-shm", "-bell"] {
                fs::remove_file(beside(&file, suffix)).expect("a file that nobody uses any more");
            }
            file.clone_from(&left);
            let opened: SqliteMailbox = self.options(mailbox.name()).open(left)?;
            Ok(Arc::new(opened) as Arc<dyn Mailbox>)
        })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.is_frozen || time > LONG {
                self.clock.pass(time);
            } else {
                tokio::time::sleep(time).await;
            }
        })
    }

    fn unit(&self) -> Duration {
        if self.is_frozen { Duration::from_secs(1) } else { Duration::from_millis(150) }
    }

    fn patience(&self) -> Duration {
        Duration::MAX
    }
}

#[test]
fn the_sqlite_mailbox_matches_the_model() {
    model::run(&SqliteFixture::frozen(), rounds(1000, 50) as u32);
}
