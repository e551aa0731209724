//! The start of a worker: shims made ahead of need, orders handed out, intent and record before the gate.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::failpoint::hit;
use crate::keeper::{ABOUT_GATE, ABOUT_SHIM, Course, Failed, Keeper};
use crate::launch::{ORDERS_IN_DESCRIPTOR, ORDERS_INLINE};
use crate::record::{Kind, Process, Record};
use crate::shim::{self, Birth, ShimHears};
use crate::sys::{self, Cloned};
use crate::wards::{Order, Role, Shim, Standing, Ward, fail};
use crate::wire::Stage;

impl Keeper {
    pub(crate) fn spawn(&mut self, key: u64, worker: Vec<u8>, orders: &[u8], mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            // The keeper is out of descriptors, and the socket for the answer was lost on the way: closed,
            // it is an answer too.
            return;
        }
        let answer = fds.remove(0);
        // Ends first: a dead worker's end precedes its replacement's intent.
        self.reap();
        let refused = if self.course == Course::Serving {
            hit("keeper.request", key).err().map(|error| (Stage::Request, error))
        } else {
            Some((Stage::Stopping, Error::from_raw_os_error(sys::ECHILD)))
        };
        if let Some((stage, error)) = refused {
            return fail(&answer, stage, sys::errno(&error));
        }
        let mut packet = Vec::with_capacity(orders.len() + 1);
        packet.push(if orders.is_empty() { ORDERS_IN_DESCRIPTOR } else { ORDERS_INLINE });
        packet.extend_from_slice(orders);
        self.orders.push_back(Order { key, worker, answer, packet, fds });
        self.hand_out();
        self.provide(self.orders.len());
    }

    /// Sees to it that so many shims are unborn or spare. If one cannot be made, the oldest order fails.
    pub(crate) fn provide(&mut self, wanted: usize) {
        for _ in self.idle()..wanted {
            if self.course != Course::Serving {
                return;
            }
            if let Err((stage, error)) = self.make_shim()
                && let Some(order) = self.orders.pop_front()
            {
                fail(&order.answer, stage, sys::errno(&error));
            }
        }
    }

    pub(crate) fn make_shim(&mut self) -> std::result::Result<(), Failed> {
        self.last_serial += 1;
        let serial = self.last_serial;
        let sockets = |error| (Stage::Sockets, error);
        hit("keeper.sockets", serial).map_err(sockets)?;
        let (socket, shim_socket) = sys::packet_pair().map_err(sockets)?;
        let (gate, worker_gate) = sys::packet_pair().map_err(sockets)?;
        self.epoll.add(socket.as_raw_fd(), (serial << 2) | ABOUT_SHIM).map_err(sockets)?;
        self.epoll.add(gate.as_raw_fd(), (serial << 2) | ABOUT_GATE).map_err(sockets)?;
        let cloning = |error| (Stage::CloneShim, error);
        hit("keeper.clone_shim", serial).map_err(cloning)?;
        let flags = shim::clone_flags(self.tier, self.user_namespace);
        let (pid, pidfd) = match sys::clone_process(flags).map_err(cloning)? {
            Cloned::Child => {
                let birth = Birth {
                    serial,
                    tier: self.tier,
                    user_namespace: self.user_namespace,
                    caller_session: self.caller_session,
                    signals: self.signals,
                    nofile: self.nofile,
                    lifelines: &self.lifelines,
                    cgroup: self.cgroup.as_ref().map(AsRawFd::as_raw_fd),
                    socket: shim_socket,
                    user: self.user,
                };
                shim::live(birth, worker_gate)
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        #[cfg(feature = "failpoints")]
        failpoint::know_shim(pid);
        // While the shim makes its process: who the shim is.
        let read = hit("keeper.shim_cloned", serial).and_then(|()| self.identities.read_briefly(pid, &pidfd));
        let (process, failure) = match read {
            Ok(process) => (process, None),
            Err(error) => {
                let _ = sys::send_signal(pid, sys::SIGKILL);
                (Process { pid, ..Process::default() }, Some((Stage::ShimSetup, sys::errno(&error))))
            }
        };
        let role = Role::Unborn { failure };
        self.by_pid.insert(pid, serial);
        self.shims.insert(
            serial,
            Shim {
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

    /// Gives the waiting orders to the processes that wait at the gate.
    pub(crate) fn hand_out(&mut self) {
        while !self.orders.is_empty() {
            let mut spares = self.shims.iter_mut();
            let Some((serial, shim)) = spares.find(|(_, shim)| matches!(shim.role, Role::Spare { .. }))
            else {
                return;
            };
            let serial = *serial;
            let Some(order) = self.orders.pop_front() else { return };
            let role = std::mem::replace(&mut shim.role, Role::Unborn { failure: None });
            let Role::Spare { worker, pidfd } = role else { return };
            let mut record = self.common.record(Kind::Record, order.key, &order.worker);
            record.main = worker;
            record.shim = shim.process;
            record.pgid = worker.pid;
            match self.write_birth(&record) {
                Ok(()) => self.open_gate(serial, order, record, pidfd),
                Err(error) => {
                    // Nothing ran: the process goes on waiting at the gate.
                    if let Some(shim) = self.shims.get_mut(&serial) {
                        shim.role = Role::Spare { worker, pidfd };
                    }
                    fail(&order.answer, Stage::Ledger, sys::errno(&error));
                }
            }
        }
    }

    /// Intent, then record, in one write: both are on file before the process gets its orders, or neither.
    pub(crate) fn write_birth(&mut self, record: &Record) -> Result<()> {
        hit("keeper.intent", record.key)?;
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if ledger.wants_compaction(self.by_key.len()) {
            let living: Vec<Record> = self
                .shims
                .values()
                .chain(&self.bereaved)
                .filter_map(|shim| match &shim.role {
                    Role::Ward(ward) => Some(ward.record.clone()),
                    Role::Unborn { .. } | Role::Spare { .. } => None,
                })
                .collect();
            ledger.compact(&living)?;
        }
        let intent = Record { kind: Kind::Intent, ..record.clone() };
        ledger.append(&[&intent, record])?;
        // A fault behind the write: the record has to be taken back.
        hit("keeper.record_written", record.key).inspect_err(|_| self.write_end(record.clone(), -1))
    }

    pub(crate) fn open_gate(&mut self, serial: u64, order: Order, record: Record, pidfd: OwnedFd) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        self.by_key.insert(order.key, serial);
        let fds: Vec<RawFd> = order.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let sent = hit("keeper.gate", order.key).and_then(|()| match &shim.gate {
            Some(gate) => sys::send(gate.as_raw_fd(), &order.packet, &fds),
            None => Err(Error::from_raw_os_error(sys::EPIPE)),
        });
        let standing = match sent {
            Ok(()) => Standing::PastTheGate { pidfd },
            Err(error) => {
                // It has no orders, and will get none. Its shim's end tells the host.
                let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
                let stage = match sys::errno(&error) {
                    sys::EPIPE | sys::ECONNRESET => Stage::ShimDied,
                    _ => Stage::Request,
                };
                Standing::Failed { stage, errno: sys::errno(&error) }
            }
        };
        let dead_end = matches!(standing, Standing::Failed { .. });
        shim.role = Role::Ward(Ward { key: order.key, record, answer: Some(order.answer), standing });
        let _ = hit("keeper.gate_opened", order.key);
        if dead_end {
            self.tell_shim(order.key, &ShimHears::Kill);
        }
    }
}
