//! The workers of the run as the keeper sees them: started, stopped and continued, ended together with their groups.
//!
//! An ended worker is not reaped before its group is empty. So the group's number stays taken, and repeated KILL
//! signals to it cannot reach a foreign process.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::frames;
use crate::gate::{GatedProcess, StageError};
use crate::keeper::{Keeper, RunPhase, identity};
use crate::process_state;
use crate::record::{Record, RecordKind};
use crate::sys::{self, ChildChange, ProcessGroup};
use crate::wire::{LaunchOrders, SpawnAnswer, SpawnStage, ToHost, WorkerEnd};

/// A worker of the run.
pub(crate) struct KeptWorker {
    pub(crate) group: ProcessGroup,
    pub(crate) record: Record,
    /// The socket of its spawn. The keeper closes it when the main process ends, so the host can wait for that end.
    answer: Option<UnixStream>,
}

impl Keeper {
    /// Starts a worker and answers on the socket that came with the orders.
    pub(crate) fn spawn(&mut self, key: u64, worker: &[u8], orders: &[u8], mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            // There was no room for the descriptors. The host sees that the socket for the answer is closed.
            return;
        }
        let answer = UnixStream::from(fds.remove(0));
        // Records ends first, so that a dead worker's end precedes its replacement's intent.
        self.check_workers();
        match self.start_worker(key, worker, orders, &fds) {
            Ok((group, record)) => {
                let message = SpawnAnswer::Spawned { pid: group.as_raw(), shim: sys::pid() };
                let _ = frames::send(&answer, &message.encode());
                self.workers.insert(key, KeptWorker { group, record, answer: Some(answer) });
            }
            Err((stage, error)) => {
                let message = SpawnAnswer::Failed { stage, errno: sys::errno(&error) };
                let _ = frames::send(&answer, &message.encode());
            }
        }
    }

    /// Starts a worker in this order: INTENT, fork, RECORD, gate.
    fn start_worker(
        &mut self,
        key: u64,
        worker: &[u8],
        orders: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(ProcessGroup, Record), StageError> {
        if self.phase != RunPhase::Serving {
            return Err((SpawnStage::Stopping, sys::not_understood()));
        }
        let orders = LaunchOrders::decode(orders)
            .filter(|orders| orders.targets.len() == fds.len())
            .ok_or_else(|| (SpawnStage::Request, sys::not_understood()))?;
        let in_ledger = |error: Error| (SpawnStage::Ledger, error);
        if self.ledger.slots.wants_compaction(self.workers.len()) {
            let living: Vec<_> = self.workers.values().map(|worker| &worker.record).collect();
            self.ledger.compact(&living).map_err(in_ledger)?;
        }
        let mut record = self.ledger.record(RecordKind::Intent, key, worker);
        self.ledger.slots.append(&[&record]).map_err(in_ledger)?;
        let born = self.pass(&orders, fds, &mut record);
        if born.is_err() {
            self.write_end(record.clone(), -1);
        }
        born.map(|group| (group, record))
    }

    fn pass(
        &mut self,
        orders: &LaunchOrders<'_>,
        fds: &[OwnedFd],
        record: &mut Record,
    ) -> Result<ProcessGroup, StageError> {
        let process = GatedProcess::fork(orders, fds, &self.context)
            .map_err(|error| (SpawnStage::CloneWorker, error))?;
        let pid = process.pid;
        let Some(group) = ProcessGroup::led_by(pid) else {
            process.discard();
            return Err((SpawnStage::Session, sys::not_understood()));
        };
        record.kind = RecordKind::Record;
        record.main = identity(pid);
        record.pgid = pid;
        if let Err(error) = self.ledger.slots.append(&[record]) {
            process.discard();
            return Err((SpawnStage::Ledger, error));
        }
        process.open_gate().inspect_err(|_| {
            sys::reap(pid);
        })?;
        Ok(group)
    }

    /// Reports changes of all workers, and ends the groups of workers that have ended.
    pub(crate) fn check_workers(&mut self) {
        self.group_lingers = false;
        let keys: Vec<u64> = self.workers.keys().copied().collect();
        for key in keys {
            let Some(worker) = self.workers.get_mut(&key) else { continue };
            match sys::ask_child(worker.group.as_raw()) {
                None => {}
                Some(ChildChange::Stopped { signal }) => self.notify_host(&ToHost::Stopped { key, signal }),
                Some(ChildChange::Continued) => self.notify_host(&ToHost::Continued { key }),
                Some(ChildChange::Ended) => {
                    worker.answer = None;
                    worker.group.kill();
                    if process_state::group_lives(worker.group.as_raw()) {
                        // The ends of the group's members are not reported, so the keeper looks again after the
                        // interval.
                        self.group_lingers = true;
                    } else {
                        self.finish_worker(key);
                    }
                }
            }
        }
    }

    /// Reaps the leader of an empty group, records the end, and reports it to the host.
    fn finish_worker(&mut self, key: u64) {
        if let Some(worker) = self.workers.remove(&key) {
            let end: WorkerEnd = sys::reap(worker.group.as_raw());
            self.write_end(worker.record, end.status);
            self.notify_host(&ToHost::Exit { key, end });
        }
    }

    fn write_end(&mut self, record: Record, status: i32) {
        let end = Record { kind: RecordKind::Exit, status, ..record };
        if let Err(error) = self.ledger.slots.append_exit(end) {
            self.notify_host(&ToHost::LedgerTrouble { errno: sys::errno(&error) });
        }
    }
}
