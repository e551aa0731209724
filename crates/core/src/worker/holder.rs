//! A worker as the calls that it holds see it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Worker, WorkerQueue};
use crate::call::answer::CallState;
use crate::call::lease::dispatch::Dispatch;
use crate::call::lease::{Holder, Lease, Load, LoadKind};
use crate::call::progress::{CallEnd, CallPlace};
use crate::call::{Call, PoolCommand};
use crate::sharded::{ShardCount, ShardRef};
use crate::value::Encoded;

impl Holder for ShardCount<Worker> {
    fn names(&self) -> (Arc<str>, Arc<str>) {
        (self.queue.pool_name(), self.id.as_str().into())
    }

    fn is_serial(&self) -> bool {
        self.concurrency == 1
    }

    fn printed(&self) -> u64 {
        self.output.printed()
    }

    fn answered(&self, call: &Call, failed: bool) {
        self.queue.clear(&call.command, &call.input);
        if failed {
            // Output about this failure must not be attributed to the next call.
            self.output.catch_up();
        }
        // The next of the calls that wait at the worker begins now. A nested call ends inside another call.
        if self.is_serial() && call.chain().is_none() {
            self.output.begin_call();
        }
    }

    fn clear(&self, command: &PoolCommand, inputs: &[Encoded]) {
        self.queue.clear_each(command, inputs);
    }

    fn suspect(&self, command: &ShardRef<PoolCommand>, input: Option<Encoded>) {
        match input {
            Some(input) => self.suspect_call(command, input),
            None => self.suspect_nobody(),
        }
    }

    fn release(&self, load: Load, taken: Option<(Instant, usize)>) {
        let places = taken.and_then(|(since, beside)| self.learn_limit(since, beside));
        if self.queue.release(self, load, places) {
            Dispatch::feed(Arc::<dyn WorkerQueue>::clone(&self.queue), self.index);
        }
        self.note_put_down();
    }

    fn give_to_another(&self, call: Call) {
        Arc::clone(&self.queue).requeue(call);
    }

    fn gather_again(&self, member: Call) {
        Arc::clone(&self.queue).gather_again(member);
    }

    fn make_alone(&self, member: Call, otherwise: CallEnd) {
        Arc::clone(&self.queue).make_alone(member, otherwise);
    }

    fn take_batch(&self, beside: usize) {
        self.take_batched(beside);
    }

    fn put_batch_down(&self, beside: usize) {
        self.put_batched_down(beside);
    }

    fn batch_ended(&self, command: &ShardRef<PoolCommand>, calls: usize) {
        Arc::clone(&self.queue).batch_ended(command, calls);
    }
}

impl ShardRef<Worker> {
    /// Gives a call the place that was taken for it. `beside` is the number of calls that the worker has now.
    pub(crate) fn seat(self, call: Call, beside: usize) -> Call {
        let load = Load { nanos: call.nanos(), kind: LoadKind::Own };
        self.places.add_work(load.nanos);
        self.hold(call, load, beside)
    }

    /// Lets a nested call be served in the place of a call that waits for it.
    pub(crate) fn seat_guest(self, call: Call) -> Call {
        let load = Load { nanos: call.nanos(), kind: LoadKind::Guest(call.id) };
        let beside = self.places.calls();
        self.hold(call, load, beside)
    }

    fn hold(self, mut call: Call, load: Load, beside: usize) -> Call {
        call.state.set_place(CallPlace::With(self.clone().into_count()));
        if beside == 1 {
            self.output.begin_call();
        }
        let taken = self.limit.is_some().then(|| Box::new((Instant::now(), beside)));
        call.lease = Some(Lease::new(self.into_count(), load, taken));
        call
    }
}

impl Worker {
    /// Returns the worker that holds a call. Only workers hold calls.
    pub(crate) fn of(holder: &dyn Holder) -> &Arc<Self> {
        let holder: &dyn std::any::Any = holder;
        holder.downcast_ref::<ShardCount<Self>>().expect("a call is held by a worker")
    }
}

impl CallState {
    /// Returns the worker that has the call, or had it.
    pub(crate) fn worker(&self) -> Option<Arc<Worker>> {
        self.holder().map(|holder| Arc::clone(Worker::of(&*holder)))
    }
}
