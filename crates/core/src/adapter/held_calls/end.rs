//! What happens to the calls of a worker that has ended.

use super::{CallSettlement, HeldCall, HeldCalls, StartKnowledge};

impl<T> HeldCalls<T> {
    /// Removes all calls of a worker that has ended, and decides what happens to each.
    pub fn end(&mut self, starts: StartKnowledge) -> EndedCalls<T> {
        (self.is_closed, self.is_leaving) = (true, true);
        self.release_streams();
        let calls = std::mem::take(&mut self.calls);
        let mut calls: Vec<_> =
            calls.into_values().map(|held| (self.stage_of(&held).at_end(starts), held)).collect();
        calls.sort_unstable_by_key(|(_, held)| held.turn);
        EndedCalls(calls.into_iter())
    }
}

/// The calls of a worker that has ended, in the order in which they began, and what happens to each.
#[derive(Debug)]
#[must_use = "these calls must be settled, without the adapter's lock"]
pub struct EndedCalls<T>(std::vec::IntoIter<(CallSettlement, HeldCall<T>)>);

impl<T> EndedCalls<T> {
    /// Settles each call as was decided for it.
    pub fn settle(self) {
        self.for_each(|(at_end, held)| held.settle(at_end));
    }
}

impl<T> Iterator for EndedCalls<T> {
    type Item = (CallSettlement, HeldCall<T>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}
