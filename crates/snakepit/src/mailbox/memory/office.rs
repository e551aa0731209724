//! The mailboxes of one process that find each other by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{MemoryMailbox, Queue};
use crate::mailbox::{DeadLetterPolicy, MailboxError};

/// Mailboxes in memory, by name: a message that names one as `reply_to` is answered there. Clones are the same post office; it
/// keeps its mailboxes, and what is in them, for as long as there is one.
#[derive(Clone, Default)]
pub struct PostOffice {
    queues: Arc<Mutex<HashMap<String, Arc<Queue>>>>,
}

impl PostOffice {
    /// One without mailboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mailbox of this name, made if there is none yet.
    pub fn mailbox(&self, name: impl Into<String>) -> MemoryMailbox {
        let name = name.into();
        let queue = self
            .find(&name)
            .unwrap_or_else(|| self.keep(Queue::with_checked_policy(name, DeadLetterPolicy::default())));
        MemoryMailbox { queue, office: self.clone() }
    }

    /// The same with rules for dead letters, which count only if there is none yet.
    pub fn mailbox_with(
        &self,
        name: impl Into<String>,
        policy: DeadLetterPolicy,
    ) -> Result<MemoryMailbox, MailboxError> {
        policy.check()?;
        let queue = self.keep(Queue::with_checked_policy(name.into(), policy));
        Ok(MemoryMailbox { queue, office: self.clone() })
    }

    /// It, or the one that has its name already.
    fn keep(&self, queue: Queue) -> Arc<Queue> {
        Arc::clone(self.lock().entry(queue.name.clone()).or_insert_with(|| Arc::new(queue)))
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<Queue>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PostOffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}
