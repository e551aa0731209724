//! Lets someone other than the waiting caller withdraw a call from the queue.

use std::fmt;
use std::sync::Arc;

use super::pending::PendingCall;
use crate::call::answer::CallState;
use crate::queue::{Location, PoolInner};
use crate::sharded::ShardRef;

/// A handle that withdraws a call from the queue while no worker has it.
pub struct Withdrawal {
    pool: ShardRef<PoolInner>,
    state: Arc<CallState>,
}

impl fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Withdrawal").finish_non_exhaustive()
    }
}

impl PendingCall {
    /// Returns a handle that withdraws this call. A call that is retried can be withdrawn only in its first attempt.
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal { pool: self.pool.clone(), state: Arc::clone(&self.state) }
    }

    /// Returns the name of the command.
    pub fn command_name(&self) -> &str {
        &self.command.name
    }
}

impl Withdrawal {
    /// Withdraws the call. Returns `false` if the call is not in the queue, because it has ended or a worker has it.
    pub fn withdraw(&self) -> bool {
        match self.pool.withdraw_or_locate(&self.state) {
            // Dropping the call answers it.
            Location::Withdrawn(_) => true,
            Location::With(_) | Location::InBatch(_) | Location::Nowhere => false,
        }
    }
}
