//! Lets someone other than the waiting caller withdraw a call from the queue.

use std::fmt;
use std::sync::Arc;

use super::pending::PendingCall;
use crate::call::answer::CallState;
use crate::pool;
use crate::queue::Location;

/// Withdraws a call from the queue, as long as no worker has it.
pub struct Withdrawal {
    pool: Arc<pool::PoolInner>,
    state: Arc<CallState>,
}

impl fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Withdrawal").finish_non_exhaustive()
    }
}

impl PendingCall {
    /// How to withdraw this call. A call that is retried is withdrawn only in its first attempt.
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal { pool: Arc::clone(&self.pool), state: Arc::clone(&self.state) }
    }

    /// The name of its command.
    pub fn command_name(&self) -> &str {
        &self.command.name
    }
}

impl Withdrawal {
    /// Withdraws the call. False if the call is not in the queue: it has ended, or a worker has it.
    pub fn withdraw(&self) -> bool {
        match self.pool.withdraw_or_locate(&self.state) {
            // Dropping the call answers it.
            Location::Withdrawn(_) => true,
            Location::With(_) | Location::InBatch(_) | Location::Nowhere => false,
        }
    }
}
