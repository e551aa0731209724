//! Receives that wait for a message, in the order of their arrival, and operations that wait for a reply.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::sqlite::operation::{Operation, OperationOutput, QueuedOperation};
use crate::sqlite::stored_message::ReceivedBatch;
use crate::sqlite::stored_time::{Micros, micros};

#[derive(Default)]
pub(crate) struct WaitingOperations {
    queues: HashMap<Arc<str>, QueueWaiters>,
}

/// The waiting operations of one queue.
#[derive(Default)]
pub(crate) struct QueueWaiters {
    pub(crate) receives: VecDeque<WaitingOperation>,
    pub(crate) results: Vec<WaitingOperation>,
    /// The number of the newest kept reply that `results` have been checked against.
    pub(crate) newest_reply: i64,
    /// When a message may become visible without a send: a lease, a delay or a rate period ends.
    pub(crate) next: Option<Micros>,
}

pub(crate) struct WaitingOperation {
    pub(crate) operation: QueuedOperation,
    until: Micros,
}

/// Returns how many messages a receive wants, if it wants several and waits for at least `wait`.
pub(crate) fn batch_of(operation: &QueuedOperation, wait: Duration) -> Option<usize> {
    match &operation.operation {
        Operation::Receive(options) if options.max_messages > 1 && options.wait >= wait => {
            Some(options.max_messages)
        }
        _ => None,
    }
}

impl WaitingOperation {
    /// Reports whether the operation goes on waiting. Gives it an empty answer if its time is over.
    fn goes_on(&mut self, now: Micros) -> bool {
        let is_over = self.until <= now;
        if is_over && let Some(reply) = self.operation.reply.take() {
            let nothing = match &self.operation.operation {
                Operation::Result(..) => OperationOutput::Reply(None),
                _ => OperationOutput::Received(ReceivedBatch::new(Vec::new(), None)),
            };
            let _ = reply.send(Ok(nothing));
        }
        !is_over && !self.operation.is_abandoned()
    }
}

impl QueueWaiters {
    /// Removes and returns the next receive whose caller still waits.
    pub(crate) fn next_receive(&mut self) -> Option<WaitingOperation> {
        std::iter::from_fn(|| self.receives.pop_front()).find(|waiting| !waiting.operation.is_abandoned())
    }

    fn all(&self) -> impl Iterator<Item = &WaitingOperation> {
        self.receives.iter().chain(&self.results)
    }
}

impl WaitingOperations {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn queues(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut QueueWaiters)> {
        self.queues.iter_mut()
    }

    fn all(&self) -> impl Iterator<Item = &WaitingOperation> {
        self.queues.values().flat_map(QueueWaiters::all)
    }

    /// Adds an operation that has found nothing. `next` is when a message may become visible without a send.
    pub(crate) fn add(&mut self, operation: QueuedOperation, next: Option<Micros>, now: Micros) {
        let until = now.saturating_add(micros(operation.wait()));
        let waiters = self.queues.entry(Arc::clone(&operation.queue)).or_default();
        if operation.is_receive() {
            waiters.next = next;
            waiters.receives.push_back(WaitingOperation { operation, until });
        } else {
            waiters.results.push(WaitingOperation { operation, until });
        }
    }

    /// Returns the queue of each waiting operation and how many messages it wants. Returns `None` unless all
    /// of them are receives of several messages that wait at least until `until`.
    pub(crate) fn batches(&self, until: Micros) -> Option<Vec<(Arc<str>, usize)>> {
        let batch = |waiting: &WaitingOperation| {
            let batch = batch_of(&waiting.operation, Duration::ZERO).filter(|_| waiting.until >= until)?;
            Some((Arc::clone(&waiting.operation.queue), batch))
        };
        self.all().map(batch).collect()
    }

    /// Removes and returns all waiting operations, so that they can be failed.
    pub(crate) fn take_all(&mut self) -> Vec<QueuedOperation> {
        let waiting =
            self.queues.drain().flat_map(|(_, waiters)| waiters.receives.into_iter().chain(waiters.results));
        waiting.map(|waiting| waiting.operation).collect()
    }

    /// Answers operations whose time is over, and drops those whose callers have gone away.
    pub(crate) fn expire(&mut self, now: Micros) {
        self.queues.retain(|_, waiters| {
            waiters.receives.retain_mut(|waiting| waiting.goes_on(now));
            waiters.results.retain_mut(|waiting| waiting.goes_on(now));
            if waiters.receives.is_empty() {
                // Without receives, nobody waits for a message to become visible.
                waiters.next = None;
            }
            waiters.all().next().is_some()
        });
    }

    /// Returns when the writer must look next although nothing wakes it: the time of an operation is over, or
    /// a message may become visible.
    pub(crate) fn next(&self) -> Option<Micros> {
        let ends = self.all().map(|waiting| waiting.until);
        ends.chain(self.queues.values().filter_map(|waiters| waiters.next)).min()
    }
}
