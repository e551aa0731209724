//! The queue as workers see it.

use std::sync::Arc;

use super::PoolInner;
use crate::call::lease::dispatch::Feeder;
use crate::call::lease::{Load, LoadKind};
use crate::call::progress::CallEnd;
use crate::call::{Autopsy, Call, CallId, Input, PoolCommand};
use crate::sharded::ShardRef;
use crate::tool::{SessionStore, Tools};
use crate::value::Encoded;
use crate::worker::{OomDetector, Worker, WorkerQueue};
use snakepit_policy::quarantine::Charge;

impl Feeder for PoolInner {
    fn feed(self: Arc<Self>, index: usize) {
        PoolInner::feed(&self, index);
    }
}

impl WorkerQueue for PoolInner {
    fn pool_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn oom(&self) -> &OomDetector {
        &self.oom
    }

    fn tools(&self) -> &Tools {
        &self.tools
    }

    fn session_store(&self) -> Arc<dyn SessionStore> {
        Arc::<super::session::Sessions>::clone(&self.sessions)
    }

    fn release(&self, worker: &Worker, load: Load, places: Option<usize>) -> bool {
        match load.kind {
            LoadKind::Own => {
                let freed = worker.places.free(load.nanos);
                if self.open.note_freed(worker.index, worker, freed) && places.is_none() {
                    return false;
                }
            }
            LoadKind::Guest(call) => self.scheduler().release_guest(worker, call),
        }
        if let Some(places) = places {
            self.scheduler().set_places(worker, places);
        }
        true
    }

    fn requeue(self: Arc<Self>, call: Call) {
        PoolInner::requeue(&self, call);
    }

    fn gather_again(self: Arc<Self>, member: Call) {
        PoolInner::gather_again(&self, member);
    }

    fn make_alone(self: Arc<Self>, member: Call, otherwise: CallEnd) {
        PoolInner::make_alone(&self, member, otherwise);
    }

    fn batch_ended(self: Arc<Self>, command: &ShardRef<PoolCommand>, calls: usize) {
        PoolInner::batch_ended(&self, command, calls);
    }

    fn asks(&self, worker: &Arc<Worker>, call: CallId) {
        self.scheduler().asks(worker, call);
    }

    fn answered(&self, worker: &Arc<Worker>, call: CallId) {
        self.scheduler().answered(worker, call);
    }

    fn suspect(&self, command: &PoolCommand, input: &Encoded, autopsy: &Arc<Autopsy>, charge: Charge) {
        PoolInner::suspect(self, command, input, autopsy, charge);
    }

    fn clear(&self, command: &PoolCommand, input: &Input) {
        PoolInner::clear(self, command, input);
    }

    fn clear_each(&self, command: &PoolCommand, inputs: &[Encoded]) {
        PoolInner::clear_each(self, command, inputs);
    }

    fn note_halt(self: Arc<Self>, worker: &Arc<Worker>) {
        PoolInner::note_halt(&self, worker);
    }

    fn retire(self: Arc<Self>, index: usize) {
        PoolInner::retire(&self, index);
    }

    fn vacate(&self, index: usize) {
        self.scheduler().vacate(index);
    }
}
