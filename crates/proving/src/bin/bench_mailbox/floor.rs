//! The least that leases cost: a queue, a heap and a map under one lock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A queue with leases and nothing else.
#[derive(Default)]
pub(crate) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    visible: VecDeque<Vec<u8>>,
    leased: HashMap<u64, Vec<u8>>,
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
    receipts: u64,
}

impl Queue {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn send(&self, bodies: Vec<Vec<u8>>) {
        self.with(|state| state.visible.extend(bodies));
    }

    /// Bodies are copied, since the lease keeps its own.
    pub(crate) fn receive(&self, most: usize, lease: Duration) -> Vec<(u64, Vec<u8>)> {
        self.with(|state| {
            let now = Instant::now();
            while state.ends.peek().is_some_and(|Reverse((end, _))| *end <= now) {
                let Some(Reverse((_, receipt))) = state.ends.pop() else { break };
                state.visible.extend(state.leased.remove(&receipt));
            }
            let mut received = Vec::with_capacity(most);
            while received.len() < most {
                let Some(body) = state.visible.pop_front() else { break };
                state.receipts += 1;
                state.ends.push(Reverse((now + lease, state.receipts)));
                state.leased.insert(state.receipts, body.clone());
                received.push((state.receipts, body));
            }
            received
        })
    }

    pub(crate) fn ack(&self, receipts: &[u64]) -> usize {
        self.with(|state| receipts.iter().filter(|receipt| state.leased.remove(receipt).is_some()).count())
    }
}
