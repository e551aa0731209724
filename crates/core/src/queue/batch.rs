//! Batches: calls of one command that are gathered and sent to a worker together.
//!
//! Pure bookkeeping, part of the scheduler and under its lock. There is no timer and no clock here; callers pass the
//! time.
//!
//! Each batch command has a group of waiting calls. When the group is *due*, an empty *carrier* is queued at the
//! position of the group's first call. The carrier is loaded when a worker has a free place, so calls that arrive while
//! it waits go with it. A group is due when a batch is full, when its window has passed since its first call, or when
//! no batch of the command is under way. So an idle pool adds no delay, and while one batch is under way, the next one
//! gathers.
//!
//! ```text
//!            first call                 full, window, or nothing under way            a worker's place
//!  (empty) ────────────► gathering ───────────────────────────────────► carrier in queue ────────────────► under way
//!                            ▲                                               │ more than it holds
//!                            └── the next first call                         └──► another carrier
//! ```

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::QueueLimit;
use super::scheduler::Scheduler;
use crate::call::PoolCommand;
use crate::call::QueueKey;
use crate::call::batch::{Batch, Underway};
use crate::call::progress::CallPlace;
use crate::call::{Call, Input};
use crate::sharded::ShardRef;
use crate::telemetry::TraceContext;
use snakepit_policy::time::after;

/// An upper bound for the bytes that a frame adds around the arguments of one call.
const AROUND: usize = 16;

/// The result of adding a call to its group.
#[derive(Debug)]
pub(crate) enum BatchStep {
    /// The call waits, and the batch timer must be woken.
    Opened,
    Waits,
    /// The group's carrier waits in the queue for a worker.
    Queued,
    Goes(Call),
    Saturated(Call, usize),
    Closed(Call),
}

/// The waiting calls of one command.
#[derive(Debug, Default)]
struct Group {
    calls: BTreeMap<QueueKey, Call>,
    bytes: usize,
    /// The queue key of the group's carrier, if the carrier is queued.
    carrier: Option<QueueKey>,
    /// Whether the window of some of the calls has passed.
    overdue: bool,
    /// When the window of the first call ends.
    closes_at: Option<Instant>,
    /// Whether the batch timer checks the group at that time or earlier.
    watched: bool,
    /// The number of batches that are with workers, including those in `ended`.
    underway: usize,
    /// The number of batches that are answered, but whose callers get a moment to call again.
    ended: usize,
    /// The most bytes that one batch may carry.
    most_bytes: usize,
}

impl Group {
    fn is_due(&self, size: usize) -> bool {
        let full = self.calls.len() >= size || self.bytes >= self.most_bytes;
        !self.calls.is_empty() && self.carrier.is_none() && (full || self.overdue || self.underway == 0)
    }

    /// Returns an empty carrier with the queue key of the first call.
    fn carrier_for(&self, command: &ShardRef<PoolCommand>) -> Option<Call> {
        let (key, first) = self.calls.first_key_value()?;
        Some(Call::carrier(command.clone(), *key, first.queued_at))
    }

    fn remove(&mut self, key: QueueKey) -> Option<Call> {
        let call = self.calls.remove(&key)?;
        self.bytes -= weight(&call);
        self.settle();
        Some(call)
    }

    /// Removes the calls of the next batch, in the order of their queue keys.
    fn load(&mut self, size: usize) -> Vec<Call> {
        if self.calls.len() <= size && self.bytes <= self.most_bytes {
            // Nearly always all calls fit. Taking the whole map avoids moving its entries with each removal.
            self.bytes = 0;
            let members = std::mem::take(&mut self.calls).into_values().collect();
            self.settle();
            return members;
        }
        let mut members = Vec::with_capacity(size.min(self.calls.len()));
        let mut bytes = 0;
        while members.len() < size
            && let Some(entry) = self.calls.first_entry()
        {
            bytes += weight(entry.get());
            if bytes > self.most_bytes && !members.is_empty() {
                break;
            }
            members.push(entry.remove());
        }
        self.bytes -= members.iter().map(weight).sum::<usize>();
        // The calls that are left have waited as long as those of this batch.
        self.overdue = true;
        self.settle();
        members
    }

    fn settle(&mut self) {
        if self.calls.is_empty() {
            self.overdue = false;
            self.closes_at = None;
        }
    }
}

fn weight(call: &Call) -> usize {
    AROUND
        + call.trace().map_or(0, TraceContext::wire_len)
        + match &call.input {
            Input::One(input) => input.payload_len(),
            Input::Many(inputs) => inputs.iter().map(crate::value::Encoded::payload_len).sum(),
        }
}

/// The groups of a pool, indexed by the numbers of their commands.
#[derive(Debug, Default)]
pub(crate) struct BatchQueue {
    groups: Vec<Group>,
    /// The number of calls that wait in groups.
    pub(crate) waiting: usize,
    /// The number of carriers in the queue.
    pub(crate) carriers: usize,
}

impl BatchQueue {
    fn group(&mut self, command: &PoolCommand) -> &mut Group {
        if self.groups.len() <= command.number {
            self.groups.resize_with(command.number + 1, Group::default);
        }
        &mut self.groups[command.number]
    }

    /// Removes and returns all waiting calls.
    pub(crate) fn drain(&mut self) -> Vec<Call> {
        let mut calls = Vec::with_capacity(self.waiting);
        for group in &mut self.groups {
            calls.extend(std::mem::take(&mut group.calls).into_values());
            group.bytes = 0;
            group.carrier = None;
            group.settle();
        }
        (self.waiting, self.carriers) = (0, 0);
        calls
    }
}

impl Scheduler {
    /// Adds a call to the group of its command.
    pub(crate) fn gather(
        &mut self,
        mut call: Call,
        limit: QueueLimit,
        most_bytes: usize,
        now: Instant,
    ) -> BatchStep {
        if !self.admits(&call) {
            return BatchStep::Closed(call);
        }
        let depth = self.depth();
        let (key, command) = (call.key, call.command.clone());
        call.state.set_place(CallPlace::Queued(key));
        call.queued_at.get_or_insert(now);
        let window = command.window();
        let group = self.batches.group(&command);
        group.most_bytes = most_bytes.saturating_sub(command.name.len() + 4 * AROUND);
        // A worker may announce a window of any length.
        group.closes_at.get_or_insert(after(now, window));
        group.overdue |= window.is_zero();
        group.bytes += weight(&call);
        group.calls.insert(key, call);
        self.batches.waiting += 1;
        let gathered = self.send_or_wait(&command);
        let waits = matches!(gathered, BatchStep::Opened | BatchStep::Waits | BatchStep::Queued);
        if limit == QueueLimit::Holds
            && depth >= self.limit
            && waits
            && let Some(call) = self.leave_group(key)
        {
            return BatchStep::Saturated(call, depth);
        }
        gathered
    }

    fn send_or_wait(&mut self, command: &ShardRef<PoolCommand>) -> BatchStep {
        self.place_carrier_first(command);
        if let Some(carrier) = self.next_batch(command) {
            return BatchStep::Goes(carrier);
        }
        let group = self.batches.group(command);
        if group.carrier.is_some() {
            BatchStep::Queued
        } else if std::mem::replace(&mut group.watched, true) {
            BatchStep::Waits
        } else {
            BatchStep::Opened
        }
    }

    /// Returns the next batch of a command if it is due, no queued call comes before it, and a worker has a free place.
    /// Queues the carrier of a batch that is due but cannot go yet.
    pub(crate) fn next_batch(&mut self, command: &ShardRef<PoolCommand>) -> Option<Call> {
        let size = command.batch().unwrap_or(1);
        let group = self.batches.group(command);
        if !group.is_due(size) {
            return None;
        }
        let carrier = group.carrier_for(command)?;
        let key = carrier.key;
        // Calls with an earlier key are served first.
        let first = self.queue.first_key_value().is_none_or(|(other, _)| key < *other);
        if first && let Some((entry, beside)) = self.choose_or_announce(&carrier) {
            return Some(self.load(entry, carrier, beside));
        }
        self.queue_carrier(carrier);
        None
    }

    fn queue_carrier(&mut self, carrier: Call) {
        self.batches.group(&carrier.command).carrier = Some(carrier.key);
        self.batches.carriers += 1;
        self.queue.insert(carrier.key, carrier);
    }

    /// Removes a carrier from the queue.
    pub(crate) fn take_carrier(&mut self, key: QueueKey) -> Option<Call> {
        let carrier = self.queue.remove(&key)?;
        self.batches.group(&carrier.command).carrier = None;
        self.batches.carriers -= 1;
        Some(carrier)
    }

    /// Loads a carrier that has a place at a worker, and queues another carrier for the calls that are left.
    pub(crate) fn load(&mut self, entry: usize, mut carrier: Call, beside: Option<usize>) -> Call {
        let Some(worker) = self.worker(entry) else { return carrier };
        let command = carrier.command.clone();
        let group = self.batches.group(&command);
        let mut members = group.load(command.batch().unwrap_or(1));
        group.underway += 1;
        let next = group.carrier_for(&command);
        self.batches.waiting -= members.len();
        if let Some(next) = next {
            self.queue_carrier(next);
        }
        let underway = Underway::new(worker.into_count(), command, members.len());
        if members.len() == 1
            && let Some(mut call) = members.pop()
        {
            // A single call needs no carrier.
            call.batch = Some(Box::new(Batch::of_one(underway)));
            return self.assign(entry, call, beside);
        }
        carrier.load_members(members, underway);
        self.assign(entry, carrier, beside)
    }

    /// Removes a call from its group.
    pub(crate) fn leave_group(&mut self, key: QueueKey) -> Option<Call> {
        if self.batches.waiting == 0 {
            return None;
        }
        let call = self.batches.groups.iter_mut().find_map(|group| group.remove(key))?;
        self.batches.waiting -= 1;
        self.place_carrier_first(&call.command);
        Some(call)
    }

    /// Moves a queued carrier to the position of its group's first call, or removes it if the group is empty.
    fn place_carrier_first(&mut self, command: &PoolCommand) {
        let group = self.batches.group(command);
        let first = group.calls.first_key_value().map(|(key, _)| *key);
        let Some(stands) = group.carrier.filter(|stands| first != Some(*stands)) else { return };
        if let Some(mut carrier) = self.take_carrier(stands)
            && let Some(first) = first
        {
            carrier.key = first;
            self.queue_carrier(carrier);
        }
    }

    /// Records that a batch was answered or lost. After a batch of one call, the next batch may go at once. The callers
    /// of a larger batch may call again together, so they get a moment to do so, until [`Scheduler::attend`].
    pub(crate) fn batch_ended(&mut self, command: &PoolCommand, calls: usize) {
        let group = self.batches.group(command);
        if calls > 1 {
            group.ended += 1;
        } else {
            group.underway -= 1;
        }
    }

    /// Ends the moment in which callers may call again, and marks the group as overdue if its window has passed.
    pub(crate) fn attend(&mut self, command: &PoolCommand, now: Instant) {
        let group = self.batches.group(command);
        group.underway -= std::mem::take(&mut group.ended);
        group.overdue |= group.closes_at.is_some_and(|time| time <= now);
    }

    /// Returns when [`Scheduler::attend`] must be called next, unless a batch ends earlier.
    pub(crate) fn watch(&mut self, command: &PoolCommand) -> Option<Instant> {
        let group = self.batches.group(command);
        let until = group.closes_at.filter(|_| group.carrier.is_none());
        group.watched = until.is_some();
        until
    }
}

#[cfg(test)]
mod tests;
