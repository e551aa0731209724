//! How the suite opens mailboxes of a backend and lets time pass for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit_mailbox::{DeadLetterPolicy, Mailbox, Pending};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// A backend under test. The default methods suit a server that keeps its own time.
pub trait Fixture: Send + Sync {
    /// Opens the mailbox of this name, or creates it. A policy that sets a delivery limit changes the mailbox's
    /// settings. Mailboxes of one fixture can reply to each other.
    fn open<'a>(&'a self, name: &'a str, policy: DeadLetterPolicy) -> Pending<'a, Arc<dyn Mailbox>>;

    /// Opens the mailbox as another process would after the first one was killed. The suite does not use the old handle
    /// again. It calls this only for mailboxes that outlive their process.
    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> Pending<'a, Arc<dyn Mailbox>> {
        self.open(mailbox.name(), DeadLetterPolicy::new())
    }

    /// Returns a runtime for the mailboxes, with the clock that [`Fixture::pass`] moves.
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// Lets time pass for the mailboxes and for tokio.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        // A server does not signal that time has passed.
        Box::pin(tokio::time::sleep_until(Instant::now() + time))
    }

    /// Returns the unit of all times in the suite: the shortest time that makes a difference even on a busy machine.
    fn unit(&self) -> Duration {
        Duration::from_millis(150)
    }

    /// Returns the longest time that [`Fixture::pass`] can let pass. Checks that need more are skipped.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// Returns a name that no other mailbox has.
pub(super) fn fresh_name() -> String {
    format!("{:016x}", fastrand::u64(..))
}
