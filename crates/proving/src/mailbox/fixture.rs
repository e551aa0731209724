//! How the suite gets mailboxes of one backend, and lets time pass for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MailboxError};
use tokio::runtime::Runtime;

/// One backend, made ready to be tested.
pub trait Fixture: Send + Sync {
    /// Where its mailboxes work, with the clock that [`Fixture::pass`] moves.
    fn runtime(&self) -> Runtime;

    /// The mailbox of this name, with these rules if it is new. All of one fixture can reply to each other.
    fn open<'a>(
        &'a self,
        name: &'a str,
        policy: DeadLetterPolicy,
    ) -> BoxFuture<'a, Result<Arc<dyn Mailbox>, MailboxError>>;

    /// The mailbox as another process sees it after the one that had it so far was killed. The old handle is not used any
    /// more. Only asked of what outlives its process.
    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> BoxFuture<'a, Arc<dyn Mailbox>>;

    /// Lets so much time pass, for its mailboxes and for tokio.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// The shortest time that makes a difference, however busy the machine is: all times of the suite are counted in it.
    fn unit(&self) -> Duration;

    /// The longest time that can pass. A check that needs more is skipped.
    fn patience(&self) -> Duration;
}
