//! Broken mailboxes for the suite.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MailboxError, MemoryMailboxes, Pending};
use snakepit::mailbox_conformance::Fixture;
use tokio::runtime::Runtime;

use super::{BackendFault, BrokenMailbox};
use crate::memory::MemoryFixture;

/// Broken mailboxes for the suite.
pub(crate) struct BrokenFixture {
    registry: MemoryMailboxes,
    memory: MemoryFixture,
    fault: BackendFault,
    opened: Arc<Mutex<HashSet<String>>>,
}

impl BrokenFixture {
    pub(crate) fn new(fault: BackendFault) -> Self {
        Self {
            registry: MemoryMailboxes::new(),
            memory: MemoryFixture::default(),
            fault,
            opened: Arc::default(),
        }
    }

    fn broken(&self, name: &str, policy: DeadLetterPolicy) -> Result<Arc<BrokenMailbox>, MailboxError> {
        BrokenMailbox::new(&self.registry, name, policy, self.fault, Arc::clone(&self.opened))
    }
}

impl Fixture for BrokenFixture {
    fn runtime(&self) -> Runtime {
        self.memory.runtime()
    }

    fn open<'a>(&'a self, name: &'a str, policy: DeadLetterPolicy) -> Pending<'a, Arc<dyn Mailbox>> {
        Box::pin(async move { Ok(self.broken(name, policy)? as Arc<dyn Mailbox>) })
    }

    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> Pending<'a, Arc<dyn Mailbox>> {
        Box::pin(async move {
            let broken = self.broken(mailbox.name(), DeadLetterPolicy::new())?;
            broken.reopen().await?;
            Ok(broken as Arc<dyn Mailbox>)
        })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.memory.pass(time)
    }

    fn unit(&self) -> Duration {
        self.memory.unit()
    }

    fn patience(&self) -> Duration {
        self.memory.patience()
    }
}
