//! The memory backend as the suite wants it: its clock stands still until it is told to move on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MailboxError, PostOffice};
use snakepit_proving::mailbox::Fixture;
use tokio::runtime::{Builder, Runtime};

#[derive(Default)]
pub(crate) struct Memory {
    office: PostOffice,
}

impl Fixture for Memory {
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        policy: DeadLetterPolicy,
    ) -> BoxFuture<'a, Result<Arc<dyn Mailbox>, MailboxError>> {
        Box::pin(async move { Ok(Arc::new(self.office.mailbox_with(name, policy)?) as Arc<dyn Mailbox>) })
    }

    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> BoxFuture<'a, Arc<dyn Mailbox>> {
        panic!("{mailbox:?} is gone with its process")
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Whoever was just started gets to its wait first.
            tokio::task::yield_now().await;
            tokio::time::advance(time).await;
        })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn patience(&self) -> Duration {
        Duration::MAX
    }
}
