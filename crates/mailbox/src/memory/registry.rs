//! The memory mailboxes of a process, by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{MemoryMailbox, MemoryQueue};
use crate::clock::{BootClock, Clock};
use crate::{DeadLetterPolicy, MailboxError};

/// Memory mailboxes by name. A reply goes to the mailbox in this set that the message names in `reply_to`. Clones share
/// the mailboxes; dropping the last clone drops them with their messages.
#[derive(Clone)]
pub struct MemoryMailboxes {
    clock: Arc<dyn Clock>,
    queues: Arc<Mutex<HashMap<String, Arc<MemoryQueue>>>>,
}

impl Default for MemoryMailboxes {
    fn default() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }
}

impl MemoryMailboxes {
    /// Creates an empty set of mailboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of mailboxes that take the times that they show from the wall clock of `clock`. Leases, delays
    /// and waits follow tokio's clock, which tests pause.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, queues: Arc::default() }
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
        if let Some(queue) = queues.get(name) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(MemoryQueue::new(name.to_owned(), Arc::clone(&self.clock)));
        queues.insert(name.to_owned(), Arc::clone(&queue));
        queue
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
