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
        MemoryMailbox { queue: self.queue(&name), office: self.clone() }
    }

    /// The same, with a limit of deliveries if the policy names one: it is one of the mailbox's settings, also if there is one
    /// already.
    #[expect(clippy::needless_pass_by_value, reason = "a policy is given away wherever one is set")]
    pub fn mailbox_with(
        &self,
        name: impl Into<String>,
        policy: DeadLetterPolicy,
    ) -> Result<MemoryMailbox, MailboxError> {
        policy.check()?;
        let queue = self.queue(&name.into());
        queue.with(|store, now| store.configure(&policy.settings_change(), now));
        Ok(MemoryMailbox { queue, office: self.clone() })
    }

    /// The one of this name, made if there is none yet.
    pub(super) fn queue(&self, name: &str) -> Arc<Queue> {
        let mut queues = self.lock();
        match queues.get(name) {
            Some(queue) => Arc::clone(queue),
            None => {
                Arc::clone(queues.entry(name.to_owned()).or_insert(Arc::new(Queue::new(name.to_owned()))))
            }
        }
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
