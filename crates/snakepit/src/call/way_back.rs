//! A call that its caller may want back while no worker has it: another one than who waits for its end takes it out of the queue.

use std::fmt;
use std::sync::Arc;

use super::ticket::Ticket;
use super::waiting::Waiting;
use crate::pool::{self, Whereabouts};

/// See the module.
pub(crate) struct WayBack {
    pool: Arc<pool::Shared>,
    ticket: Arc<Ticket>,
}

impl fmt::Debug for WayBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WayBack").finish_non_exhaustive()
    }
}

impl Waiting {
    /// Of a call that is made once.
    pub(crate) fn way_back(&self) -> WayBack {
        WayBack { pool: Arc::clone(&self.pool), ticket: Arc::clone(&self.ticket) }
    }
}

impl WayBack {
    /// Takes it out of the queue; false if it is not there: then it has an end, or will have one.
    pub(crate) fn withdraws(&self) -> bool {
        match self.pool.withdraw_or_locate(&self.ticket) {
            // Dropped, it is answered.
            Whereabouts::Withdrawn(_) => true,
            Whereabouts::With(_) | Whereabouts::Aboard(_) | Whereabouts::Nowhere => false,
        }
    }
}
