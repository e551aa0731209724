//! The operations of one transaction, and how it serves waiting operations.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rusqlite::Connection;

use super::waiting::{QueueWaiters, WaitingOperation, WaitingOperations};
use crate::backend::Throttle;
use crate::sqlite::error::OperationError;
use crate::sqlite::operation::{Operation, OperationOutput, QueuedOperation};
use crate::sqlite::storage::Creation;
use crate::sqlite::stored_time::Micros;
use crate::sqlite::transaction::{Transaction, TransactionEvent, next_due, queue_number, throttle_of};
use crate::{MailboxError, telemetry};

/// The operations of one transaction.
pub(crate) struct OperationBatch {
    pub(crate) operations: VecDeque<QueuedOperation>,
    pub(crate) done: Vec<(QueuedOperation, Result<OperationOutput, MailboxError>)>,
    /// There may be something for waiting operations, whatever this batch does.
    pub(crate) is_stirred: bool,
}

impl OperationBatch {
    /// Reports whether the batch may have to write. It does not if it only receives from queues that have
    /// nothing.
    pub(crate) fn may_write(
        &self,
        connection: &Connection,
        queues: &HashMap<Arc<str>, i64>,
        now: Micros,
    ) -> rusqlite::Result<bool> {
        if self.is_stirred {
            return Ok(true);
        }
        for operation in self.operations.iter().filter(|operation| !operation.operation.is_read()) {
            let Some(queue) = queues.get(&operation.queue).filter(|_| operation.is_receive()) else {
                return Ok(true);
            };
            if glance(connection, *queue, now)?.0 || has_expired(connection, *queue, now)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Serves the waiting operations of queues in which something may have come.
    pub(crate) fn serve_waiting(
        &mut self,
        transaction: &mut Transaction<'_>,
        queues: &HashMap<Arc<str>, i64>,
        waiting: &mut WaitingOperations,
    ) -> rusqlite::Result<()> {
        for (name, waiters) in waiting.queues() {
            let Some(queue) = queues.get(name) else { continue };
            if self.is_stirred || transaction.stirred.contains(queue) {
                self.serve_receives(transaction, *queue, waiters)?;
                self.serve_results(transaction, *queue, waiters)?;
            }
        }
        Ok(())
    }

    fn serve_receives(
        &mut self,
        transaction: &mut Transaction<'_>,
        queue: i64,
        waiters: &mut QueueWaiters,
    ) -> rusqlite::Result<()> {
        while let Some(waiting) = waiters.next_receive() {
            let Operation::Receive(options) = &waiting.operation.operation else { continue };
            match transaction.receive(queue, options) {
                Ok(received) if received.messages.is_empty() => {
                    waiters.next = received.next;
                    // The receive keeps its place at the front.
                    waiters.receives.push_front(waiting);
                    break;
                }
                result => self.finish(waiting, result.map(OperationOutput::Received))?,
            }
        }
        Ok(())
    }

    fn serve_results(
        &mut self,
        transaction: &Transaction<'_>,
        queue: i64,
        waiters: &mut QueueWaiters,
    ) -> rusqlite::Result<()> {
        for waiting in std::mem::take(&mut waiters.results) {
            let Operation::Result(request, _) = &waiting.operation.operation else { continue };
            match transaction.result(queue, *request) {
                Ok(None) => waiters.results.push(waiting),
                result => self.finish(waiting, result.map(OperationOutput::Reply))?,
            }
        }
        Ok(())
    }

    /// Completes a waiting operation. An error of SQLite ends the batch, and fails this operation with the
    /// others.
    fn finish(
        &mut self,
        waiting: WaitingOperation,
        result: Result<OperationOutput, OperationError>,
    ) -> rusqlite::Result<()> {
        let result = match result {
            Ok(output) => Ok(output),
            Err(OperationError::Refused(error)) => Err(error),
            Err(OperationError::Sql(error)) => {
                self.operations.push_front(waiting.operation);
                return Err(error);
            }
        };
        self.done.push((waiting.operation, result));
        Ok(())
    }
}

/// Reports the events of a committed transaction.
pub(crate) fn report(queues: &HashMap<Arc<str>, i64>, events: &[(i64, TransactionEvent)]) {
    let mut sent: Vec<(i64, usize)> = Vec::new();
    let name = |queue: i64| queues.iter().find(|(_, number)| **number == queue).map_or("", |(name, _)| name);
    for (queue, event) in events {
        match event {
            TransactionEvent::Sent => match sent.iter_mut().find(|(other, _)| other == queue) {
                Some((_, messages)) => *messages += 1,
                None => sent.push((*queue, 1)),
            },
            TransactionEvent::Message(event) => event.report(name(*queue)),
        }
    }
    for (queue, messages) in sent {
        telemetry::sent(name(queue), messages);
    }
}

/// Returns the number of the last kept reply.
pub(crate) fn newest_reply(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(number), 0) FROM result")?;
    statement.query_row([], |row| row.get(0))
}

/// Reports whether a message may be received from the queue now, and when that may change without a send.
pub(crate) fn receivable(
    connection: &Connection,
    queue: i64,
    now: Micros,
) -> rusqlite::Result<(bool, Option<Micros>)> {
    match throttle_of(connection, queue, now)? {
        Throttle::Paused => Ok((false, None)),
        Throttle::Until(time) => Ok((false, Some(time as Micros))),
        Throttle::AtMost(_) => glance(connection, queue, now),
    }
}

/// Reports whether the queue has a visible or due message, and when the next lease or delay ends.
fn glance(connection: &Connection, queue: i64, now: Micros) -> rusqlite::Result<(bool, Option<Micros>)> {
    let is_ready = has_ready(connection, queue, 1)?;
    let next = next_due(connection, queue)?;
    Ok((is_ready || next.is_some_and(|next| next <= now), next))
}

/// Reports whether the queue has at least this many visible messages.
pub(crate) fn has_ready(connection: &Connection, queue: i64, messages: usize) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM message WHERE queue = ?1 AND state = 0 LIMIT 1 OFFSET ?2")?
        .exists([queue, messages.saturating_sub(1) as i64])
}

/// Reports whether a message of the queue has outlived its time to live.
fn has_expired(connection: &Connection, queue: i64, now: Micros) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM message WHERE queue = ?1 AND state < 2 AND expires <= ?2 LIMIT 1")?
        .exists([queue, now])
}

/// Returns the number of the operation's queue. Creates the queue unless the operation only reads. Known
/// numbers are kept in `queues`.
pub(crate) fn known_queue_number(
    connection: &Connection,
    queues: &mut HashMap<Arc<str>, i64>,
    operation: &QueuedOperation,
) -> rusqlite::Result<Option<i64>> {
    if let Some(number) = queues.get(&operation.queue) {
        return Ok(Some(*number));
    }
    let creation = if operation.operation.is_read() { Creation::Never } else { Creation::IfMissing };
    let number = queue_number(connection, &operation.queue, creation)?;
    if let Some(number) = number {
        queues.insert(Arc::clone(&operation.queue), number);
    }
    Ok(number)
}
