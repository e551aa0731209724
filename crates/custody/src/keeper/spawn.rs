//! The start of a worker: shims created ahead of need, orders assigned to them, intent and record before the gate.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::failpoint::hit;
use crate::keeper::{ABOUT_GATE, ABOUT_SHIM, Keeper, RunPhase, StageError};
use crate::record::{ProcessIdentity, Record, RecordKind};
use crate::shim::{self, ORDERS_IN_DESCRIPTOR, ORDERS_INLINE, ShimOptions, ToShim};
use crate::sys::{self, Cloned};
use crate::wire::SpawnStage;
use crate::workers::{KeptWorker, LaunchState, QueuedSpawn, ShimEntry, ShimRole, fail};

impl Keeper {
    pub(crate) fn spawn(&mut self, key: u64, worker: Vec<u8>, orders: &[u8], mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            // The keeper has no free descriptor, and the socket for the answer was lost on the way. The host sees that
            // the socket is closed.
            return;
        }
        let answer = fds.remove(0);
        // Records ends first, so that a dead worker's end precedes its replacement's intent.
        self.reap();
        let refused = if self.phase == RunPhase::Serving {
            hit("keeper.request", key).err().map(|error| (SpawnStage::Request, error))
        } else {
            Some((SpawnStage::Stopping, Error::from_raw_os_error(sys::ECHILD)))
        };
        if let Some((stage, error)) = refused {
            return fail(&answer, stage, sys::errno(&error));
        }
        let mut packet = Vec::with_capacity(orders.len() + 1);
        packet.push(if orders.is_empty() { ORDERS_IN_DESCRIPTOR } else { ORDERS_INLINE });
        packet.extend_from_slice(orders);
        self.orders.push_back(QueuedSpawn { key, worker, answer, packet, fds });
        self.assign_spares();
        self.ensure_spares(self.orders.len());
    }

    /// Makes sure that at least `wanted` shims are starting or spare. If a shim cannot be created, the oldest spawn
    /// fails.
    pub(crate) fn ensure_spares(&mut self, wanted: usize) {
        for _ in self.idle()..wanted {
            if self.phase != RunPhase::Serving {
                return;
            }
            if let Err((stage, error)) = self.make_shim()
                && let Some(order) = self.orders.pop_front()
            {
                fail(&order.answer, stage, sys::errno(&error));
            }
        }
    }

    pub(crate) fn make_shim(&mut self) -> std::result::Result<(), StageError> {
        self.last_serial += 1;
        let serial = self.last_serial;
        let sockets = |error| (SpawnStage::Sockets, error);
        hit("keeper.sockets", serial).map_err(sockets)?;
        let (socket, shim_socket) = sys::packet_pair().map_err(sockets)?;
        let (gate, worker_gate) = sys::packet_pair().map_err(sockets)?;
        self.epoll.add(socket.as_raw_fd(), (serial << 2) | ABOUT_SHIM).map_err(sockets)?;
        self.epoll.add(gate.as_raw_fd(), (serial << 2) | ABOUT_GATE).map_err(sockets)?;
        let cloning = |error| (SpawnStage::CloneShim, error);
        hit("keeper.clone_shim", serial).map_err(cloning)?;
        let flags = shim::clone_flags(self.tier, self.user_namespace);
        let (pid, pidfd) = match sys::clone_process(flags).map_err(cloning)? {
            Cloned::Child => {
                let options = ShimOptions {
                    serial,
                    tier: self.tier,
                    user_namespace: self.user_namespace,
                    caller_session: self.caller_session,
                    signals: self.signals,
                    nofile: self.nofile,
                    descriptors: &self.descriptors,
                    cgroup: self.cgroup.as_ref().map(AsRawFd::as_raw_fd),
                    socket: shim_socket,
                    user: self.user,
                };
                shim::run(options, worker_gate)
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        #[cfg(feature = "failpoints")]
        failpoint::know_shim(pid);
        // Read the shim's identity while the shim creates its process.
        let read = hit("keeper.shim_cloned", serial).and_then(|()| self.identities.read_briefly(pid, &pidfd));
        let (process, failure) = match read {
            Ok(process) => (process, None),
            Err(error) => {
                let _ = sys::send_signal(pid, sys::SIGKILL);
                (
                    ProcessIdentity { pid, ..ProcessIdentity::default() },
                    Some((SpawnStage::ShimSetup, sys::errno(&error))),
                )
            }
        };
        let role = ShimRole::Starting { failure };
        self.by_pid.insert(pid, serial);
        self.shims.insert(
            serial,
            ShimEntry {
                process,
                socket: Some(socket),
                gate: Some(gate),
                role,
                end: None,
                watched: None,
                worker_ended: false,
                seen_end: None,
                reaped: false,
            },
        );
        Ok(())
    }

    /// Assigns the queued spawns to the processes that wait at the gate.
    pub(crate) fn assign_spares(&mut self) {
        while !self.orders.is_empty() {
            let mut spares = self.shims.iter_mut();
            let Some((serial, shim)) = spares.find(|(_, shim)| matches!(shim.role, ShimRole::Spare { .. }))
            else {
                return;
            };
            let serial = *serial;
            let Some(order) = self.orders.pop_front() else { return };
            let role = std::mem::replace(&mut shim.role, ShimRole::Starting { failure: None });
            let ShimRole::Spare { worker, pidfd } = role else { return };
            let mut record = self.common.record(RecordKind::Record, order.key, &order.worker);
            record.main = worker;
            record.shim = shim.process;
            record.pgid = worker.pid;
            match self.write_birth(&record) {
                Ok(()) => self.open_gate(serial, order, record, pidfd),
                Err(error) => {
                    // Nothing ran, so the process keeps waiting at the gate.
                    if let Some(shim) = self.shims.get_mut(&serial) {
                        shim.role = ShimRole::Spare { worker, pidfd };
                    }
                    fail(&order.answer, SpawnStage::Ledger, sys::errno(&error));
                }
            }
        }
    }

    /// Writes intent and record in one write, so that both or neither are in the ledger before the process gets its
    /// orders.
    pub(crate) fn write_birth(&mut self, record: &Record) -> Result<()> {
        hit("keeper.intent", record.key)?;
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if ledger.slots.wants_compaction(self.by_key.len()) {
            let living: Vec<Record> = self
                .shims
                .values()
                .chain(&self.killed_shims)
                .filter_map(|shim| match &shim.role {
                    ShimRole::Serving(kept) => Some(kept.record.clone()),
                    ShimRole::Starting { .. } | ShimRole::Spare { .. } => None,
                })
                .collect();
            ledger.compact(&living)?;
        }
        let intent = Record { kind: RecordKind::Intent, ..record.clone() };
        ledger.slots.append(&[&intent, record])?;
        // Simulates a fault after the write: the record has to be revoked.
        hit("keeper.record_written", record.key).inspect_err(|_| self.write_end(record.clone(), -1))
    }

    pub(crate) fn open_gate(&mut self, serial: u64, order: QueuedSpawn, record: Record, pidfd: OwnedFd) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        self.by_key.insert(order.key, serial);
        let fds: Vec<RawFd> = order.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let sent = hit("keeper.gate", order.key).and_then(|()| match &shim.gate {
            Some(gate) => sys::send(gate.as_raw_fd(), &order.packet, &fds),
            None => Err(Error::from_raw_os_error(sys::EPIPE)),
        });
        let launch = match sent {
            Ok(()) => LaunchState::PastGate { pidfd },
            Err(error) => {
                // The process has no orders and gets none. The host learns of the failure from the end of the shim.
                let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
                let stage = match sys::errno(&error) {
                    sys::EPIPE | sys::ECONNRESET => SpawnStage::ShimDied,
                    _ => SpawnStage::Request,
                };
                LaunchState::Failed { stage, errno: sys::errno(&error) }
            }
        };
        let dead_end = matches!(launch, LaunchState::Failed { .. });
        shim.role =
            ShimRole::Serving(KeptWorker { key: order.key, record, answer: Some(order.answer), launch });
        let _ = hit("keeper.gate_opened", order.key);
        if dead_end {
            self.send_to_shim(order.key, &ToShim::Kill);
        }
    }
}
