//! The fixture of the memory backend, whose clock stands still until a test moves it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MemoryMailboxes, Pending};
use snakepit::mailbox_conformance::Fixture;
use tokio::runtime::{Builder, Runtime};

#[derive(Default)]
pub(crate) struct MemoryFixture {
    registry: MemoryMailboxes,
}

impl Fixture for MemoryFixture {
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
    }

    fn open<'a>(&'a self, name: &'a str, policy: DeadLetterPolicy) -> Pending<'a, Arc<dyn Mailbox>> {
        Box::pin(async move { Ok(Arc::new(self.registry.mailbox_with(name, policy)?) as Arc<dyn Mailbox>) })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // A task that was just started reaches its wait first.
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
