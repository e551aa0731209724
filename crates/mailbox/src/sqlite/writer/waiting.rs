//! Receives that wait for a message, in the order in which they came, and operations that wait for a reply.

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

/// The operations that wait at one queue.
#[derive(Default)]
pub(crate) struct QueueWaiters {
    pub(crate) receives: VecDeque<WaitingOperation>,
    pub(crate) results: Vec<WaitingOperation>,
    /// The newest reply that `results` were compared with.
    pub(crate) newest_reply: i64,
    /// When a message can be received again by itself.
    pub(crate) next: Option<Micros>,
}

pub(crate) struct WaitingOperation {
    pub(crate) operation: QueuedOperation,
    until: Micros,
}

/// How many messages a receive wants, if it wants several and waits for at least `wait`.
pub(crate) fn batch_of(operation: &QueuedOperation, wait: Duration) -> Option<usize> {
    match &operation.operation {
        Operation::Receive(options) if options.max_messages > 1 && options.wait >= wait => {
            Some(options.max_messages)
        }
        _ => None,
    }
}

impl WaitingOperation {
    /// Whether it goes on waiting. If its time is over, it gets an empty answer.
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
    /// The next receive whose caller still waits.
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

    /// Adds an operation that has found nothing. `next`: when a message can be received again.
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

    /// The queues of all waiting operations and how many messages each wants, if all want several and wait until then.
    pub(crate) fn batches(&self, until: Micros) -> Option<Vec<(Arc<str>, usize)>> {
        let batch = |waiting: &WaitingOperation| {
            let batch = batch_of(&waiting.operation, Duration::ZERO).filter(|_| waiting.until >= until)?;
            Some((Arc::clone(&waiting.operation.queue), batch))
        };
        self.all().map(batch).collect()
    }

    /// Takes all out, to be told of a failure.
    pub(crate) fn take_all(&mut self) -> Vec<QueuedOperation> {
        let waiting =
            self.queues.drain().flat_map(|(_, waiters)| waiters.receives.into_iter().chain(waiters.results));
        waiting.map(|waiting| waiting.operation).collect()
    }

    /// Answers operations that have waited long enough, and drops those whose callers are gone.
    pub(crate) fn expire(&mut self, now: Micros) {
        self.queues.retain(|_, waiters| {
            waiters.receives.retain_mut(|waiting| waiting.goes_on(now));
            waiters.results.retain_mut(|waiting| waiting.goes_on(now));
            if waiters.receives.is_empty() {
                // A message that comes back concerns nobody who waits for a reply.
                waiters.next = None;
            }
            waiters.all().next().is_some()
        });
    }

    /// When something happens next that nobody announces.
    pub(crate) fn next(&self) -> Option<Micros> {
        let ends = self.all().map(|waiting| waiting.until);
        ends.chain(self.queues.values().filter_map(|waiters| waiters.next)).min()
    }
}
