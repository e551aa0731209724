//! What a supervisor reports: the health of its pool, and its workers.

use std::sync::Arc;

use tokio::time::Instant;

use super::main_loop::{SupervisedWorker, Supervisor};
use super::{WorkerDuty, WorkerRow, WorkerRows};
use crate::queue::PoolHealth;
use crate::telemetry::{Event, Level, emit_with};

impl Supervisor {
    pub(super) fn report_health(&mut self) {
        // A lazy pool wants no worker before its first call, so a full count does not mean that the pool is healthy.
        let fails = self.restarts.is_degraded() && self.serving.is_empty();
        let health = if self.is_empty() && self.first.is_none() {
            PoolHealth::Empty
        } else if self.serving.len() >= self.target() && !fails {
            if let Some(first) = self.first.take() {
                let _ = first.send(Ok(()));
                let (pool, workers) = (&self.shared.name, self.serving.len());
                emit_with(Level::Info, || Event::PoolReady { pool: Arc::clone(pool), workers });
            }
            if !self.restarts.is_degraded() {
                // The trouble is over, and is not the reason for later failures.
                self.trouble = None;
            }
            self.short_of_some().unwrap_or(PoolHealth::Ready(self.target))
        } else if let Some(reason) = self.trouble.clone() {
            let serving = self.serving.len();
            if self.restarts.is_degraded() {
                PoolHealth::Degraded { serving, reason }
            } else {
                PoolHealth::Short { serving, reason }
            }
        } else {
            PoolHealth::Starting
        };
        self.shared.health.send_if_modified(|current| {
            let changed = *current != health;
            *current = health;
            changed
        });
        #[cfg(feature = "metrics")]
        {
            let (queued, in_flight) = {
                let scheduler = self.shared.scheduler();
                (scheduler.depth(), scheduler.in_flight())
            };
            crate::telemetry::stands(&crate::telemetry::Standing {
                pool: &self.shared.name,
                workers: self.serving.len(),
                queued,
                in_flight,
                sessions: self.shared.sessions.count(),
            });
        }
    }

    /// Reports that the pool has stopped. The gauges are reset, because they would keep their last values.
    pub(super) fn report_stopped(&self) {
        let pool = &self.shared.name;
        #[cfg(feature = "metrics")]
        crate::telemetry::stands(&crate::telemetry::Standing {
            pool,
            workers: 0,
            queued: 0,
            in_flight: 0,
            sessions: 0,
        });
        self.shared.health.send_replace(PoolHealth::Stopped);
        emit_with(Level::Info, || Event::PoolStopped { pool: Arc::clone(pool) });
    }

    /// Returns `PoolHealth::Short` if there are enough workers but too few of them can serve. No other workers are started
    /// in their place: the stopped ones may be continued.
    fn short_of_some(&self) -> Option<PoolHealth> {
        let (halted, others): (Vec<&SupervisedWorker>, Vec<_>) =
            self.serving.values().partition(|it| it.is_halted());
        let stuck: Vec<&SupervisedWorker> =
            others.into_iter().filter(|member| member.notes.told_stuck).collect();
        let serving = self.serving.len() - halted.len() - stuck.len();
        let why = [
            (halted, "stopped by a signal, and waiting for SIGCONT"),
            (stuck, "no sign of life, though there is a call (see `stuck`)"),
        ];
        let told = why.iter().filter(|(members, _)| !members.is_empty()).map(|(members, why)| {
            let names: Vec<&str> = members.iter().map(|member| member.worker.id.as_str()).collect();
            format!("{why}: {}", names.join(", "))
        });
        let reason = told.collect::<Vec<_>>().join("; ");
        (serving < self.target() && !reason.is_empty())
            .then(|| PoolHealth::Short { serving, reason: reason.into() })
    }

    pub(super) fn worker_rows(&mut self) -> WorkerRows {
        let row = |member: &SupervisedWorker, state| WorkerRow {
            worker: Arc::clone(&member.worker),
            state,
            reason: member.due.map(|mark| mark.due),
            liveness: None,
        };
        let serving = self.serving.values().map(|member| {
            let state = if member.due.is_some() { WorkerDuty::Due } else { WorkerDuty::Serving };
            WorkerRow { liveness: Some(member.liveness()), ..row(member, state) }
        });
        let kept = self.kept.iter().map(|member| row(member, WorkerDuty::Kept));
        let leaving = self.leaving.iter().map(|member| row(member, WorkerDuty::Leaving));
        WorkerRows {
            generation: self.generation.number,
            target: self.target,
            starting: self.starting.len(),
            workers: serving.chain(kept).chain(leaving).collect(),
            tainted: self.slots.tainted(Instant::now()),
        }
    }
}
