//! What a call wishes for and what becomes of it, between a pool and its scheduler.

use std::sync::Arc;

use super::Shared;
use crate::call::Call;
use crate::call::batch::Aboard;
use crate::call::ticket::{Place, Ticket};
use crate::worker::Berth;

/// Which worker a call may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Any,
    /// This one if it has a free place, else any.
    Rather(usize),
    /// This one, waiting for it if need be.
    Only(usize),
    /// This one, now or not at all.
    OnlyNow(usize),
}

/// What became of a call that was offered.
#[derive(Debug)]
pub(crate) enum Placed {
    Now(Call),
    Queued,
    Saturated(Call, usize),
    Busy(Call),
    Closed(Call),
}

/// Where a call was found.
pub(crate) enum Whereabouts {
    Withdrawn(Box<Call>),
    With(Arc<Berth>),
    /// With a worker, in a batch.
    Aboard(Arc<Aboard>),
    Nowhere,
}

impl Shared {
    /// Where a caller's call is, for whoever wants to reach it.
    pub(crate) fn withdraw_or_locate(&self, ticket: &Ticket) -> Whereabouts {
        loop {
            match ticket.place() {
                None => return Whereabouts::Nowhere,
                Some(Place::With(berth)) => return Whereabouts::With(berth),
                Some(Place::Aboard(aboard)) => return Whereabouts::Aboard(aboard),
                Some(Place::Queued(key)) => match self.withdraw(key) {
                    Some(call) => return Whereabouts::Withdrawn(Box::new(call)),
                    None if ticket.has_ended() => return Whereabouts::Nowhere,
                    // It was on its way to a worker between the two looks; its place is set under the lock that
                    // withdraw has taken, so the next look sees it.
                    None => {}
                },
            }
        }
    }
}
