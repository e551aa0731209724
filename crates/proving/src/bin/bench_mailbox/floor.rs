//! The floors: what the same work costs without a mailbox around it.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use snakepit_proving::bench::Outcome;

/// A mutexed queue with a lease heap and a receipt map.
#[derive(Default)]
pub(crate) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Vec<u8>)>,
    leases: BinaryHeap<(std::cmp::Reverse<Instant>, u64)>,
    receipts: HashMap<u64, Vec<u8>>,
    next: u64,
}

impl Queue {
    pub(crate) fn send(&self, body: Vec<u8>) {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.waiting.push_back((id, body));
    }

    pub(crate) fn receive(&self, most: usize, lease: Duration) -> Vec<u64> {
        let mut state = self.lock();
        let until = Instant::now() + lease;
        let mut given = Vec::with_capacity(most);
        while given.len() < most
            && let Some((id, body)) = state.waiting.pop_front()
        {
            state.leases.push((std::cmp::Reverse(until), id));
            state.receipts.insert(id, body);
            given.push(id);
        }
        given
    }

    pub(crate) fn ack(&self, receipt: u64) -> bool {
        let mut state = self.lock();
        let known = state.receipts.remove(&receipt).is_some();
        // Leases of what is done are dropped when they come to the top.
        while let Some((_, id)) = state.leases.peek()
            && !state.receipts.contains_key(id)
        {
            state.leases.pop();
        }
        known
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The same inserts, by hand: as many in a transaction as there are senders. Gives the messages per second.
pub(crate) fn inserts(file: &Path, messages: usize, group: usize, body: &[u8]) -> Outcome<f64> {
    let mut connection = rusqlite::Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(
        "CREATE TABLE message (seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, queue TEXT NOT NULL,
         priority INTEGER NOT NULL, due INTEGER NOT NULL, deliveries INTEGER NOT NULL, sent INTEGER NOT NULL, body BLOB NOT NULL);
         CREATE INDEX next ON message (queue, priority DESC, seq) WHERE due = 0;",
    )?;
    let began = Instant::now();
    let mut left = messages;
    while left > 0 {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO message (id, queue, priority, due, deliveries, sent, body) VALUES (?, ?, 0, 0, 0, ?, ?)",
            )?;
            for number in 0..group.min(left) {
                let id = ((left - number) as u128).to_be_bytes();
                insert.execute((&id[..], "default", 1_700_000_000_000_000_i64, body))?;
            }
        }
        transaction.commit()?;
        left -= group.min(left);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}
