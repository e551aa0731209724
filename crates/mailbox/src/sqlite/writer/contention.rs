//! Contention between the processes that use the file, and what receivers do about it.
//!
//! If several processes each take every message as soon as it comes, they keep each other waiting. Ten
//! messages at a time need a tenth of the transactions. So receives of several messages let messages gather,
//! but only under contention.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::batch::has_ready;
use super::waiting::{WaitingOperations, batch_of};
use crate::sqlite::operation::QueuedOperation;
use crate::sqlite::storage::lock_wait::has_waited;
use crate::sqlite::stored_time::{Micros, micros};

/// How long messages may gather for receives of several messages.
pub(crate) const GATHERING_FOR_BATCHES: Duration = Duration::from_millis(5);
/// Contention lasts for this long after a wait for another process.
const RECENT: Duration = Duration::from_millis(50);

/// When this process last waited for another process.
#[derive(Debug, Default)]
pub(crate) struct Contention(Option<Micros>);

impl Contention {
    /// Records whether this process had to wait. Called after each transaction.
    pub(crate) fn note(&mut self, now: Micros) {
        if has_waited() {
            self.0 = Some(now);
        }
    }

    /// Reports whether messages may gather before these operations run and waiting operations are served. All
    /// of them must be receives of several messages, wait long enough, and have no full batch ready.
    pub(crate) fn may_gather(
        &self,
        now: Micros,
        operations: &[QueuedOperation],
        waiting: &WaitingOperations,
        queues: &HashMap<Arc<str>, i64>,
        connection: &Connection,
    ) -> bool {
        if self.0.is_none_or(|at| now >= at.saturating_add(micros(RECENT))) {
            return false;
        }
        let batch = |operation: &QueuedOperation| {
            Some((Arc::clone(&operation.queue), batch_of(operation, GATHERING_FOR_BATCHES)?))
        };
        let new: Option<Vec<_>> = operations.iter().map(batch).collect();
        let waiting = waiting.batches(now.saturating_add(micros(GATHERING_FOR_BATCHES)));
        let (Some(new), Some(waiting)) = (new, waiting) else { return false };
        new.into_iter().chain(waiting).all(|(name, batch)| {
            let queue = queues.get(&name);
            queue.is_some_and(|queue| has_ready(connection, *queue, batch).is_ok_and(|is_full| !is_full))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReceiveOptions;
    use crate::sqlite::operation::Operation;
    use crate::sqlite::storage::lock_wait::wait;

    const NOW: Micros = 1_000_000;

    fn receive(messages: usize, wait: Duration) -> Vec<QueuedOperation> {
        let operation = Operation::Receive(ReceiveOptions::new().max_messages(messages).wait(wait));
        vec![QueuedOperation { queue: "q".into(), operation, reply: None }]
    }

    fn file_with(ready: usize) -> Connection {
        let file = Connection::open_in_memory().unwrap_or_else(|error| panic!("{error}"));
        let made = file.execute_batch("CREATE TABLE message (queue INTEGER, state INTEGER)");
        let filled = (0..ready).try_for_each(|_| file.execute_batch("INSERT INTO message VALUES (1, 0)"));
        made.and(filled).unwrap_or_else(|error| panic!("{error}"));
        file
    }

    fn gathers(contention: &Contention, now: Micros, operations: &[QueuedOperation], ready: usize) -> bool {
        let queues = HashMap::from([("q".into(), 1)]);
        contention.may_gather(now, operations, &WaitingOperations::default(), &queues, &file_with(ready))
    }

    #[test]
    fn messages_gather_only_under_contention_for_waiting_batches_that_are_not_full() {
        let several = receive(10, GATHERING_FOR_BATCHES);
        let mut contention = Contention::default();
        contention.note(NOW);
        assert!(!gathers(&contention, NOW, &several, 3), "nobody has waited");
        assert!(wait(0), "it waits for another process");
        contention.note(NOW);
        assert!(gathers(&contention, NOW, &several, 3));
        assert!(!gathers(&contention, NOW, &several, 10), "the batch is full");
        assert!(!gathers(&contention, NOW, &receive(1, GATHERING_FOR_BATCHES), 0), "one at a time");
        assert!(!gathers(&contention, NOW, &receive(10, Duration::ZERO), 3), "it does not wait");
        let other = vec![QueuedOperation { queue: "q".into(), operation: Operation::Count, reply: None }];
        assert!(!gathers(&contention, NOW, &other, 3), "it is no receive");
        assert!(!gathers(&contention, NOW + micros(RECENT), &several, 3), "the contention is over");
    }
}
