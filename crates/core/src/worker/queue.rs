//! What a worker knows of the queue that gives it its calls.

use std::sync::Arc;

use super::{Autopsy, OomDetector, Worker};
use crate::call::lease::Load;
use crate::call::lease::dispatch::Feeder;
use crate::call::progress::CallEnd;
use crate::call::{Call, CallId, Input, PoolCommand};
use crate::sharded::ShardRef;
use crate::tool::{SessionStore, Tools};
use crate::value::Encoded;
use snakepit_policy::quarantine::Charge;

/// The queue of a pool, as its workers and their calls see it.
pub(crate) trait WorkerQueue: Feeder {
    fn pool_name(&self) -> Arc<str>;
    fn oom(&self) -> &OomDetector;
    fn tools(&self) -> &Tools;
    fn session_store(&self) -> Arc<dyn SessionStore>;

    /// Frees the place of a call. `places` is the number of calls that the worker gets at a time from now on, if that
    /// has changed. Returns whether calls may wait for the place; then [`Feeder::feed`] must follow.
    fn release(&self, worker: &Worker, load: Load, places: Option<usize>) -> bool;
    /// Finds another worker for a call that its worker never started.
    fn requeue(self: Arc<Self>, call: Call);
    /// Lets a member of a batch that the worker had not started wait for the next batch.
    fn gather_again(self: Arc<Self>, member: Call);
    /// Repeats a member of a failed batch alone, or ends it with `otherwise`.
    fn make_alone(self: Arc<Self>, member: Call, otherwise: CallEnd);
    /// Records that a batch of `calls` calls has ended.
    fn batch_ended(self: Arc<Self>, command: &ShardRef<PoolCommand>, calls: usize);

    /// Records that a call of the worker waits for a tool of the host.
    fn asks(&self, worker: &Arc<Worker>, call: CallId);
    /// Records that the tool has answered.
    fn answered(&self, worker: &Arc<Worker>, call: CallId);

    /// Records that a worker may have died of this input.
    fn suspect(&self, command: &PoolCommand, input: &Encoded, autopsy: &Arc<Autopsy>, charge: Charge);
    /// Records that a worker has survived a call with this input.
    fn clear(&self, command: &PoolCommand, input: &Input);
    /// Records that a worker has survived calls with these inputs.
    fn clear_each(&self, command: &PoolCommand, inputs: &[Encoded]);

    /// Pauses or resumes a worker whose process was stopped or continues.
    fn note_halt(self: Arc<Self>, worker: &Arc<Worker>);
    /// Stops giving calls to a worker. Calls that only this worker could serve go to the others.
    fn retire(self: Arc<Self>, index: usize);
    /// Frees the index of a worker that is gone.
    fn vacate(&self, index: usize);
}
