//! The end of a worker and its consequences, and the end of all workers.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError};
use tokio::time::Instant;

use super::external_kill::{died_from_outside, failed_from_outside};
use super::main_loop::{SupervisedWorker, Supervisor, WorkerReport};
use super::reload::ReloadError;
use super::worker_task::TaskEnd;
use crate::adapter::{Reason, StartError};
use crate::call::Autopsy;
use crate::error_text::with_causes;
use crate::queue::worker_died;
use crate::telemetry::Event;
use crate::worker::StopWindow;
use crate::worker::{WorkerEnding, WorkerOrder};
use snakepit_policy::jitter::Chance;
use snakepit_policy::restarts::WorkerLife;
use snakepit_policy::taint::fault::{WorkerExit, fault_of};
use snakepit_policy::taint::{Assignment, name_of};

impl Supervisor {
    pub(super) fn worker_ended(&mut self, left: Result<(Id, TaskEnd), JoinError>) {
        let task = left.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let place = self.places.remove(&task);
        if let (Some(place), Ok((_, TaskEnd::Ended { ending: WorkerEnding::Failed { autopsy, .. }, .. }))) =
            (&place, &left)
        {
            self.look_for_taint(place, autopsy);
        }
        if let Some(place) = place {
            self.slots.give_back(place);
        }
        let failure = match left.map(|(_, left)| left) {
            Err(panic) => Some((self.remove_task(task, &panic), WorkerLife::default())),
            // The worker was not needed any more.
            Ok(TaskEnd::NotStarted { error: StartError::Stopped, .. }) => {
                self.starting.remove(&task);
                None
            }
            Ok(TaskEnd::NotStarted { generation, error }) => {
                self.starting.remove(&task);
                let said = with_causes(&error);
                self.shared.announce(|pool| Event::WorkerNotStarted { pool, reason: said.as_str().into() });
                let from_outside = failed_from_outside(&error);
                if generation == self.generation.number
                    && let Some(reload) = self.given_up(from_outside)
                {
                    return self.abort_reload(reload, &said);
                }
                if self.first.is_some() && self.first_failure.as_ref().is_none_or(failed_from_outside) {
                    self.first_failure = Some(error);
                }
                Some((said, WorkerLife::default()))
            }
            Ok(TaskEnd::Ended { worker, ending }) => {
                // The index may belong to another worker by now.
                if self.serving.get(&worker.index).is_some_and(|member| Arc::ptr_eq(&member.worker, &worker))
                {
                    self.serving.remove(&worker.index);
                }
                let is_another = |member: &SupervisedWorker| !Arc::ptr_eq(&member.worker, &worker);
                self.leaving.retain(is_another);
                self.kept.retain(is_another);
                self.calls_of_ended_workers += worker.calls_given();
                match ending {
                    WorkerEnding::Ordered => {
                        let worker = worker.id.as_str();
                        self.shared.announce(|pool| Event::WorkerEnded { pool, worker: worker.into() });
                        None
                    }
                    WorkerEnding::Failed { autopsy, answered } => {
                        let said = autopsy.to_string();
                        let life = WorkerLife { lived: autopsy.age, answered, was_used: autopsy.calls > 0 };
                        let from_outside = died_from_outside(&autopsy);
                        self.shared.announce(|pool| worker_died(pool, &autopsy));
                        // The other new workers would fail in the same way.
                        if worker.generation == self.generation.number
                            && let Some(reload) = self.given_up(from_outside)
                        {
                            return self.abort_reload(reload, &said);
                        }
                        Some((said, life))
                    }
                }
            }
        };
        let Some((reason, life)) = failure else { return };
        let reason: Arc<str> = reason.into();
        let was_degraded = self.restarts.is_degraded();
        self.restarts.failed(Instant::now(), life, Chance::draw());
        if self.restarts.is_degraded() && !was_degraded {
            self.shared.announce(|pool| Event::PoolDegraded { pool, reason: Arc::clone(&reason) });
        }
        self.trouble = Some(Arc::clone(&reason));
        let nobody_is_left = self.serving.is_empty() && self.starting.is_empty();
        if was_degraded && nobody_is_left && life == WorkerLife::default() {
            // A trial worker did not even start. The waiting calls have had their chance, and the next trial may take
            // long.
            self.report_health();
            self.shared.refuse_waiting(&reason);
        }
    }

    /// Reports a failed start to the caller that waits for it: no worker became ready, or workers fail too often. A
    /// worker that fails while others do not is started again, as it is later.
    pub(super) fn give_up_start(&mut self) {
        let nobody_starts = self.serving.is_empty() && self.starting.is_empty();
        if self.first.is_none() || !(self.restarts.is_degraded() || nobody_starts) {
            return;
        }
        let failure = if self.restarts.is_degraded() {
            // All workers may have died after they were ready.
            let trouble = || self.trouble.as_ref().map(|reason| StartError::KeepsDying(reason.to_string()));
            self.first_failure.take().or_else(trouble)
        } else {
            // A failure from outside does not count until the pool is degraded.
            self.first_failure.take_if(|error| !failed_from_outside(error))
        };
        if let Some(failure) = failure
            && let Some(first) = self.first.take()
        {
            let _ = first.send(Err(failure));
        }
    }

    /// Removes the worker of a task that panicked. The panic is the fault of the worker's adapter.
    fn remove_task(&mut self, task: Id, panic: &JoinError) -> String {
        self.starting.remove(&task);
        self.leaving.retain(|member| member.task != task);
        let lost = self.serving.extract_if(.., |_, member| member.task == task);
        for (index, _) in lost.collect::<Vec<_>>() {
            self.shared.retire(index);
        }
        let said = format!("a worker's adapter failed: {panic}");
        self.shared.announce(|pool| Event::WorkerNotStarted { pool, reason: said.as_str().into() });
        said
    }

    /// Taints the place of a worker if the place caused its death. A tainted place is not used for a while.
    fn look_for_taint(&mut self, place: &Assignment, autopsy: &Autopsy) {
        let policy = &self.generation.config.taint;
        let exit = WorkerExit {
            status: autopsy.exit.map(|exit| exit.status),
            by_pool: autopsy.fault.is_some(),
            output: &autopsy.output,
        };
        let Some(fault) = fault_of(&exit, &policy.patterns) else { return };
        let shown = name_of(place.device.as_deref(), place.slot);
        self.slots.taint(place, fault.clone(), Instant::now());
        self.shared.announce(|pool| Event::PoolTainted {
            pool,
            place: shown.into(),
            fault: fault.to_string().into(),
            lasts: policy.lasts,
        });
    }

    /// Ends every worker, even those with calls.
    pub(super) async fn stop(
        mut self,
        window: StopWindow,
        mut reports: mpsc::UnboundedReceiver<WorkerReport>,
    ) {
        self.shared.shut();
        drop(self.first.take());
        if let Some(reload) = self.reload.take() {
            let _ = reload.reply.send(Err(ReloadError::Stopped));
        }
        while let Ok(report) = reports.try_recv() {
            self.receive_report(report);
        }
        self.stopping.send_replace(Some(window));
        self.end_all();
        loop {
            tokio::select! {
                // Receives every report: a pattern that does not match would disable this branch until a worker has
                // ended.
                Some(report) = reports.recv() => if let WorkerReport::Serving(_, worker) = report {
                    worker.order(WorkerOrder::End(Reason::Stopped));
                },
                left = self.tasks.join_next() => if left.is_none() {
                    return self.report_stopped();
                },
            }
        }
    }

    fn end_all(&self) {
        let all = self.serving.values().chain(&self.leaving).chain(&self.kept);
        all.for_each(|member| member.worker.order(WorkerOrder::End(Reason::Stopped)));
    }
}
