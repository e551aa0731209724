//! A call's place at a worker, and what a call knows of the worker.

pub(crate) mod dispatch;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::progress::CallEnd;
use super::{Call, CallId, PoolCommand};
use crate::sharded::ShardRef;
use crate::value::Encoded;

/// The worker that holds a call. This is all that calls know of workers, queues and pools.
pub(crate) trait Holder: Any + fmt::Debug + Send + Sync {
    /// Returns the names of the pool and of the worker.
    fn names(&self) -> (Arc<str>, Arc<str>);
    /// Reports whether the worker does one call at a time.
    fn is_serial(&self) -> bool;
    /// Returns how many lines the worker has printed.
    fn printed(&self) -> u64;
    /// Records that the worker has answered a call that it holds.
    fn answered(&self, call: &Call, failed: bool);
    /// Records that the worker survived calls with these inputs, so that they are not suspected.
    fn clear(&self, command: &PoolCommand, inputs: &[Encoded]);
    /// Records that the worker may have died of a call with this input. `None` stands for several calls of which it is
    /// unknown which the worker had begun.
    fn suspect(&self, command: &ShardRef<PoolCommand>, input: Option<Encoded>);
    /// Frees the place of a call.
    fn release(&self, load: Load, taken: Option<(Instant, usize)>);
    /// Gives a call that the worker had not started to another worker.
    fn give_to_another(&self, call: Call);
    /// Lets a member of a batch that the worker had not started wait for the next batch.
    fn gather_again(&self, member: Call);
    /// Repeats a member of a failed batch alone, or ends it with `otherwise`.
    fn make_alone(&self, member: Call, otherwise: CallEnd);
    /// Counts `beside` calls in addition to those that hold a lease.
    fn take_batch(&self, beside: usize);
    /// Stops counting `beside` such calls.
    fn put_batch_down(&self, beside: usize);
    /// Records that a batch of `calls` calls has ended.
    fn batch_ended(&self, command: &ShardRef<PoolCommand>, calls: usize);
}

/// How much of a worker a call takes up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) nanos: u32,
    pub(crate) kind: LoadKind,
}

/// Whether a call takes up a place of its own, or stands in for a call that waits for a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadKind {
    Own,
    Guest(CallId),
}

/// A call's place at a worker. Dropping it gives the place to the next call.
#[derive(Debug)]
pub(crate) struct Lease {
    holder: Arc<dyn Holder>,
    load: Load,
    /// When the place was taken, and how many calls the worker had then. Set if the worker's limit is learned from
    /// that. Boxed, because every call is moved with this field and few calls use it.
    taken: Option<Box<(Instant, usize)>>,
}

impl Lease {
    pub(crate) fn new(holder: Arc<dyn Holder>, load: Load, taken: Option<Box<(Instant, usize)>>) -> Self {
        Self { holder, load, taken }
    }

    pub(crate) fn holder(&self) -> &Arc<dyn Holder> {
        &self.holder
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.holder.release(self.load, self.taken.take().map(|taken| *taken));
    }
}
