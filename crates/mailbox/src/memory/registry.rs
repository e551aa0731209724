//! The memory mailboxes of a process, by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{MemoryMailbox, MemoryQueue};
use crate::{DeadLetterPolicy, MailboxError};

/// Memory mailboxes by name. A reply goes to the mailbox in this set that the message names in `reply_to`. Clones share
/// the mailboxes; dropping the last clone drops them with their messages.
#[derive(Clone, Default)]
pub struct MemoryMailboxes {
    queues: Arc<Mutex<HashMap<String, Arc<MemoryQueue>>>>,
}

impl MemoryMailboxes {
    /// Creates an empty set of mailboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the mailbox with this name, and creates it if there is none yet.
    pub fn mailbox(&self, name: impl Into<String>) -> MemoryMailbox {
        let name = name.into();
        MemoryMailbox { queue: self.queue(&name), registry: self.clone() }
    }

    /// Like [`MemoryMailboxes::mailbox`], and sets the delivery limit of the policy if it has one. The limit becomes a
    /// setting of the mailbox, even if the mailbox existed before.
    #[expect(clippy::needless_pass_by_value, reason = "every setter takes its policy by value")]
    pub fn mailbox_with(
        &self,
        name: impl Into<String>,
        policy: DeadLetterPolicy,
    ) -> Result<MemoryMailbox, MailboxError> {
        policy.check()?;
        let queue = self.queue(&name.into());
        queue.with(|store, now| store.configure(&policy.settings_change(), now));
        Ok(MemoryMailbox { queue, registry: self.clone() })
    }

    pub(super) fn queue(&self, name: &str) -> Arc<MemoryQueue> {
        let mut queues = self.lock();
        match queues.get(name) {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(
                queues.entry(name.to_owned()).or_insert(Arc::new(MemoryQueue::new(name.to_owned()))),
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<MemoryQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryMailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}
