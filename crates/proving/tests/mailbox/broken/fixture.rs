//! Broken mailboxes for the suite.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MailboxError, PostOffice};
use snakepit_proving::mailbox::Fixture;
use tokio::runtime::Runtime;

use super::{Broken, Fault};
use crate::memory::Memory;

/// Broken mailboxes for the suite.
pub(crate) struct BrokenMemory {
    office: PostOffice,
    memory: Memory,
    fault: Fault,
    opened: Arc<Mutex<HashSet<String>>>,
}

impl BrokenMemory {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { office: PostOffice::new(), memory: Memory::default(), fault, opened: Arc::default() }
    }
}

impl Fixture for BrokenMemory {
    fn runtime(&self) -> Runtime {
        self.memory.runtime()
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        policy: DeadLetterPolicy,
    ) -> BoxFuture<'a, Result<Arc<dyn Mailbox>, MailboxError>> {
        Box::pin(async move {
            let broken: Arc<dyn Mailbox> = {
                let opened = Arc::clone(&self.opened);
                Broken::new(&self.office, name, policy, self.fault, opened)?
            };
            Ok(broken)
        })
    }

    fn reopen<'a>(&'a self, mailbox: &'a dyn Mailbox) -> BoxFuture<'a, Arc<dyn Mailbox>> {
        self.memory.reopen(mailbox)
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
