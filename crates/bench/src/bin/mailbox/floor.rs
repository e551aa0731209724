//! The floors: the cost of the same work without a mailbox around it.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use snakepit_bench::BenchResult;
use snakepit_bench::time::{rate, shared_seconds};

/// A queue behind a mutex, with a lease heap and a receipt map.
#[derive(Default)]
pub(crate) struct PlainQueue(Mutex<PlainQueueState>);

#[derive(Default)]
struct PlainQueueState {
    waiting: VecDeque<(u64, Vec<u8>)>,
    leases: BinaryHeap<(std::cmp::Reverse<Instant>, u64)>,
    receipts: HashMap<u64, Vec<u8>>,
    next: u64,
}

impl PlainQueue {
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
        // Leases of acknowledged messages are dropped when they reach the top.
        while let Some((_, id)) = state.leases.peek()
            && !state.receipts.contains_key(id)
        {
            state.leases.pop();
        }
        known
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PlainQueueState> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Opens a file as a hand-written queue would: a table, an index, a durable log.
pub(crate) fn open(file: &Path) -> BenchResult<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS message (seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, queue TEXT NOT NULL,
         priority INTEGER NOT NULL, due INTEGER NOT NULL, deliveries INTEGER NOT NULL, sent INTEGER NOT NULL, body BLOB NOT NULL);
         CREATE INDEX IF NOT EXISTS next ON message (queue, priority DESC, seq) WHERE due = 0;",
    )?;
    Ok(connection)
}

fn insert(connection: &Connection, priority: i8, body: &[u8]) -> BenchResult<()> {
    connection
        .prepare_cached(
            "INSERT INTO message (id, queue, priority, due, deliveries, sent, body) VALUES (randomblob(16), ?, ?, 0, 0, ?, ?)",
        )?
        .execute(("default", priority, 1_700_000_000_000_000_i64, body))?;
    Ok(())
}

/// Makes the same inserts in plain SQL, with `group` messages per transaction. Returns messages per second.
pub(crate) fn inserts(file: &Path, messages: usize, group: usize, body: &[u8]) -> BenchResult<f64> {
    let connection = open(file)?;
    let began = Instant::now();
    let mut left = messages;
    while left > 0 {
        let transaction = connection.unchecked_transaction()?;
        for _ in 0..group.min(left) {
            insert(&transaction, 0, body)?;
        }
        transaction.commit()?;
        left -= group.min(left);
    }
    Ok(rate(messages, began))
}

/// Inserts messages, each in its own transaction.
pub(crate) fn send(connection: &Connection, messages: usize, body: &[u8]) -> BenchResult<()> {
    (0..messages).try_for_each(|_| insert(connection, 0, body))
}

/// Inserts messages behind all others.
pub(crate) fn send_last(connection: &Connection, messages: usize, body: &[u8]) -> BenchResult<()> {
    (0..messages).try_for_each(|_| insert(connection, -1, body))
}

/// Leases up to `most` messages in one transaction and returns their numbers and bodies.
fn lease(connection: &Connection, most: usize) -> BenchResult<Vec<(i64, Vec<u8>)>> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut select = connection.prepare_cached(
        "SELECT seq, body FROM message WHERE queue = 'default' AND due = 0 ORDER BY priority DESC, seq LIMIT ?",
    )?;
    let found: Vec<(i64, Vec<u8>)> = select
        .query_map([most as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    drop(select);
    let mut update =
        connection.prepare_cached("UPDATE message SET due = ?, deliveries = deliveries + 1 WHERE seq = ?")?;
    for (number, _) in &found {
        update.execute([1_700_000_060_000_000_i64, *number])?;
    }
    drop(update);
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(found)
}

fn acknowledge(connection: &Connection, numbers: impl Iterator<Item = i64>) -> BenchResult<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut delete = connection.prepare_cached("DELETE FROM message WHERE seq = ? AND due > 0")?;
    for number in numbers {
        delete.execute([number])?;
    }
    drop(delete);
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Receives and acknowledges all messages. Returns messages per second.
pub(crate) fn receives(file: &Path, messages: usize, batch: usize, body: &[u8]) -> BenchResult<f64> {
    let connection = open(file)?;
    let transaction = connection.unchecked_transaction()?;
    send(&transaction, messages, body)?;
    transaction.commit()?;
    let began = Instant::now();
    let mut left = messages;
    while left > 0 {
        let found = lease(&connection, batch)?;
        left -= found.len();
        acknowledge(&connection, found.into_iter().map(|(number, _)| number))?;
    }
    Ok(rate(messages, began))
}

/// Receives until a stop message arrives, and returns when the last message before it was acknowledged. Polls, because
/// plain SQLite notifies no receiver.
pub(crate) fn receive_until_stopped(connection: &Connection, batch: usize) -> BenchResult<f64> {
    let mut last = shared_seconds();
    loop {
        let found = lease(connection, batch)?;
        if found.is_empty() {
            #[expect(clippy::disallowed_methods, reason = "the measured code polls")]
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let (stops, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, body)| body == b"stop");
        if !others.is_empty() {
            acknowledge(connection, others.into_iter().map(|(number, _)| number))?;
            last = shared_seconds();
        }
        if let [own, rest @ ..] = &stops[..] {
            acknowledge(connection, std::iter::once(own.0))?;
            for (number, _) in rest {
                connection.execute("UPDATE message SET due = 0 WHERE seq = ?", [number])?;
            }
            return Ok(last);
        }
    }
}
