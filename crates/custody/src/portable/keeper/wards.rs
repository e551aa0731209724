//! A worker's life as its keeper sees it: born, stopped and continued, ended, and everybody of its group with it.
//!
//! A worker that has ended is not reaped before its group is empty: so the group's number stays taken, and KILL to
//! it cannot reach a stranger, however often it is sent.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::birth::{Failure, Newborn};
use crate::inbox;
use crate::keeper::{Course, Keeper, identity};
use crate::look;
use crate::record::{Kind, Record};
use crate::sys::{self, Group, Told};
use crate::wire::{Answer, End, Orders, Stage, ToHost};

/// A worker in the keeper's care.
pub(crate) struct Ward {
    pub(crate) group: Group,
    pub(crate) record: Record,
    /// The socket of its spawn. It is closed when the main process has ended, which is how the host can wait
    /// for that.
    answer: Option<UnixStream>,
}

impl Keeper {
    /// Starts a worker and answers on the socket that came with the order.
    pub(crate) fn spawn(&mut self, key: u64, worker: &[u8], orders: &[u8], mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            // There was no room for its descriptors. The answer's socket is lost with them, which says it.
            return;
        }
        let answer = UnixStream::from(fds.remove(0));
        // Ends first: a dead worker's end precedes its replacement's intent.
        self.look_after();
        match self.bear(key, worker, orders, &fds) {
            Ok((group, record)) => {
                let message = Answer::Spawned { pid: group.as_raw(), shim: sys::pid() };
                let _ = inbox::send(&answer, &message.encode());
                self.wards.insert(key, Ward { group, record, answer: Some(answer) });
            }
            Err((stage, error)) => {
                let message = Answer::Failed { stage, errno: sys::errno(&error) };
                let _ = inbox::send(&answer, &message.encode());
            }
        }
    }

    /// INTENT, birth, RECORD, gate: in this order.
    fn bear(
        &mut self,
        key: u64,
        worker: &[u8],
        orders: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(Group, Record), Failure> {
        if self.course != Course::Serving {
            return Err((Stage::Stopping, sys::not_understood()));
        }
        let orders = Orders::decode(orders)
            .filter(|orders| orders.targets.len() == fds.len())
            .ok_or_else(|| (Stage::Request, sys::not_understood()))?;
        let in_ledger = |error: Error| (Stage::Ledger, error);
        if self.pen.wants_compaction(self.wards.len()) {
            let living: Vec<_> = self.wards.values().map(|ward| &ward.record).collect();
            self.pen.compact(&living).map_err(in_ledger)?;
        }
        let mut record = self.pen.record(Kind::Intent, key, worker);
        self.pen.append(&record).map_err(in_ledger)?;
        let born = self.pass(&orders, fds, &mut record);
        if born.is_err() {
            self.write_end(record.clone(), -1);
        }
        born.map(|group| (group, record))
    }

    fn pass(&mut self, orders: &Orders<'_>, fds: &[OwnedFd], record: &mut Record) -> Result<Group, Failure> {
        let newborn =
            Newborn::fork(orders, fds, &self.ground).map_err(|error| (Stage::CloneWorker, error))?;
        let pid = newborn.pid;
        let Some(group) = Group::led_by(pid) else {
            newborn.dismiss();
            return Err((Stage::Session, sys::not_understood()));
        };
        record.kind = Kind::Record;
        record.main = identity(pid);
        record.pgid = pid;
        if let Err(error) = self.pen.append(record) {
            newborn.dismiss();
            return Err((Stage::Ledger, error));
        }
        newborn.let_pass().inspect_err(|_| {
            sys::reap(pid);
        })?;
        Ok(group)
    }

    /// Hears all wards, and sees those to their end that have come to it.
    pub(crate) fn look_after(&mut self) {
        self.lingering = false;
        let keys: Vec<u64> = self.wards.keys().copied().collect();
        for key in keys {
            let Some(ward) = self.wards.get_mut(&key) else { continue };
            match sys::ask_child(ward.group.as_raw()) {
                None => {}
                Some(Told::Stopped { signal }) => self.tell(&ToHost::Stopped { key, signal }),
                Some(Told::Continued) => self.tell(&ToHost::Continued { key }),
                Some(Told::Ended) => {
                    ward.answer = None;
                    ward.group.kill();
                    if look::group_lives(ward.group.as_raw()) {
                        // Nobody tells of their ends, so they are looked for again after the interval.
                        self.lingering = true;
                    } else {
                        self.bury(key);
                    }
                }
            }
        }
    }

    /// Everybody of the group is gone: reaps the leader, writes the end, tells the host.
    fn bury(&mut self, key: u64) {
        if let Some(ward) = self.wards.remove(&key) {
            let end: End = sys::reap(ward.group.as_raw());
            self.write_end(ward.record, end.status);
            self.tell(&ToHost::Exit { key, end });
        }
    }

    fn write_end(&mut self, record: Record, status: i32) {
        let end = Record { kind: Kind::Exit, status, ..record };
        if let Err(error) = self.pen.append_exit(end) {
            self.tell(&ToHost::LedgerTrouble { errno: sys::errno(&error) });
        }
    }
}
