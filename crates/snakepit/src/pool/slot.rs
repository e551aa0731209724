//! A call's place at a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::scheduler::Load;
use crate::worker::Berth;

/// A call's place at a worker. Dropping it gives the place to the next one.
#[derive(Debug)]
pub(crate) struct Slot {
    berth: Arc<Berth>,
    load: Load,
    /// When it was taken, and how many calls the worker had then, where the worker's limit follows from that. In a box,
    /// because every call is moved with it and few have it.
    taken: Option<Box<(Instant, usize)>>,
}

impl Slot {
    pub(super) fn new(berth: Arc<Berth>, load: Load) -> Self {
        let beside = berth.takes();
        if beside == 1 {
            berth.output.begin_call();
        }
        berth.pool.in_hand.fetch_add(1, Ordering::SeqCst);
        let taken = berth.limit.is_some().then(|| Box::new((Instant::now(), beside)));
        Self { berth, load, taken }
    }

    pub(crate) fn berth(&self) -> &Arc<Berth> {
        &self.berth
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let places = self.taken.take().and_then(|taken| self.berth.learn_limit(taken.0, taken.1));
        self.berth.puts_down();
        self.berth.pool.in_hand.fetch_sub(1, Ordering::SeqCst);
        self.berth.pool.release(&self.berth, self.load, places);
    }
}
