//! A call's place at a worker, and the worker as far as a call knows it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::progress::CallEnd;
use super::{Call, CallId, PoolCommand};
use crate::value::Encoded;

/// The worker that holds a call. Calls know no more of workers, queues and pools than this.
pub(crate) trait Holder: Any + fmt::Debug + Send + Sync {
    /// The names of its pool and of itself.
    fn names(&self) -> (Arc<str>, Arc<str>);
    /// Whether it does one call at a time.
    fn is_serial(&self) -> bool;
    /// How many lines it has printed.
    fn printed(&self) -> u64;
    /// It has answered a call that it holds.
    fn answered(&self, call: &Call, failed: bool);
    /// It lives after calls with these inputs: nobody is to suspect them.
    fn clear(&self, command: &PoolCommand, inputs: &[Encoded]);
    /// It may have died of a call with this input, or of calls of which nobody knows which it had begun.
    fn suspect(&self, command: &Arc<PoolCommand>, input: Option<Encoded>);
    /// A place is free again.
    fn release(&self, load: Load, taken: Option<(Instant, usize)>);
    /// It had not started the call: another worker is given it.
    fn give_to_another(&self, call: Call);
    /// It had not started a batch: a member waits for the next one.
    fn gather_again(&self, member: Call);
    /// A member of a batch that failed as a whole is made alone, or ends so.
    fn make_alone(&self, member: Call, otherwise: CallEnd);
    /// It has so many calls more than those that hold a lease.
    fn take_batch(&self, beside: usize);
    /// It has so many fewer again.
    fn put_batch_down(&self, beside: usize);
    /// A batch of so many calls has ended.
    fn batch_ended(&self, command: &Arc<PoolCommand>, calls: usize);
}

/// How much a call takes up at a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) nanos: u32,
    pub(crate) kind: LoadKind,
}

/// Whether a call takes up a place, or stands in for one that waits for a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadKind {
    Own,
    Guest(CallId),
}

/// A call's place at a worker. Dropping it gives the place to the next one.
#[derive(Debug)]
pub(crate) struct Lease {
    holder: Arc<dyn Holder>,
    load: Load,
    /// When it was taken, and how many calls the worker had then, where the worker's limit follows from that. In a box,
    /// because every call is moved with it and few have it.
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
