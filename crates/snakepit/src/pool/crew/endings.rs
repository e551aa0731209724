//! How workers end, and what follows from that; and how all of them do.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError};
use tokio::time::Instant;

use super::life::Left;
use super::reload::ReloadError;
use super::roster::{News, Roster, SHORT_LIFE};
use crate::adapter::{Reason, StartError};
use crate::lifecycle::stop_window::StopWindow;
use crate::pool::{Health, PoolEvent};
use crate::supervision::jitter::Chance;
use crate::supervision::restarts::Life;
use crate::supervision::taint::fault::fault_of;
use crate::supervision::taint::{Place, name_of};
use crate::telemetry::{Event, Level, emit_with};
use crate::worker::{Autopsy, Ending, Order};

impl Roster {
    pub(super) fn bury(&mut self, left: Result<(Id, Left), JoinError>) {
        let task = left.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let place = self.places.remove(&task);
        if let (Some(place), Ok((_, Left::Ended { ending: Ending::Untold { autopsy, .. }, .. }))) =
            (&place, &left)
        {
            self.look_for_taint(place, autopsy);
        }
        if let Some(place) = place {
            self.slots.give_back(place);
        }
        let failure = match left.map(|(_, left)| left) {
            Err(panic) => Some((self.strike(task, &panic), Life::Short)),
            // Nobody wanted it any more.
            Ok(Left::NotStarted { error: StartError::Stopped, .. }) => {
                self.starting.remove(&task);
                None
            }
            Ok(Left::NotStarted { generation, error }) => {
                self.starting.remove(&task);
                let said = error.to_string();
                self.shared.announce(PoolEvent::WorkerNotStarted { reason: said.as_str().into() });
                if let Some(first) = self.first.take() {
                    let _ = first.send(Err(error));
                }
                if generation == self.generation.number
                    && let Some(reload) = self.reload.take()
                {
                    return self.abort_reload(reload, &said);
                }
                Some((said, Life::Short))
            }
            Ok(Left::Ended { berth, ending }) => {
                // Its index may belong to another one by now.
                if self.serving.get(&berth.post).is_some_and(|member| Arc::ptr_eq(&member.berth, &berth)) {
                    self.serving.remove(&berth.post);
                }
                self.leaving.retain(|leaving| !Arc::ptr_eq(&leaving.berth, &berth));
                self.buried_calls += berth.calls_given();
                let lived = berth.ready_at.elapsed() >= SHORT_LIFE;
                match ending {
                    Ending::Told => {
                        self.shared.announce(PoolEvent::WorkerEnded { worker: berth.id.to_string() });
                        None
                    }
                    Ending::Untold { autopsy, answered } => {
                        let said = autopsy.to_string();
                        self.shared.announce(PoolEvent::WorkerDied { autopsy });
                        // It got ready and no further: the others would go the same way.
                        if !lived
                            && berth.generation == self.generation.number
                            && let Some(reload) = self.reload.take()
                        {
                            return self.abort_reload(reload, &said);
                        }
                        Some((said, if lived || answered { Life::Served } else { Life::Short }))
                    }
                }
            }
        };
        let Some((reason, life)) = failure else { return };
        let reason: Arc<str> = reason.into();
        let was_degraded = self.restarts.is_degraded();
        self.restarts.failed(Instant::now(), life, Chance::draw());
        if self.restarts.is_degraded() && !was_degraded {
            self.shared.announce(PoolEvent::Degraded { reason: Arc::clone(&reason) });
        }
        self.trouble = Some(reason);
    }

    /// The task of a worker panicked, which is its adapter's doing: whoever it was, it is off the books.
    fn strike(&mut self, task: Id, panic: &JoinError) -> String {
        self.starting.remove(&task);
        self.leaving.retain(|member| member.task != task);
        let lost = self.serving.extract_if(.., |_, member| member.task == task);
        for (post, _) in lost.collect::<Vec<_>>() {
            self.shared.retire(post);
        }
        let said = format!("a worker's adapter failed: {panic}");
        self.shared.announce(PoolEvent::WorkerNotStarted { reason: said.as_str().into() });
        said
    }

    /// The place that a worker died of is not used for a while.
    fn look_for_taint(&mut self, place: &Place, autopsy: &Autopsy) {
        let policy = &self.generation.config.taint;
        let Some(fault) = fault_of(autopsy, &policy.patterns) else { return };
        let shown = name_of(place.device.as_deref(), place.slot);
        self.slots.taint(place, fault.clone(), Instant::now());
        self.shared.announce(PoolEvent::Tainted { place: shown, fault, lasts: policy.lasts });
    }

    /// Ends every worker, whatever it has.
    pub(super) async fn stop(mut self, window: StopWindow, mut news: mpsc::UnboundedReceiver<News>) {
        self.shared.shut();
        drop(self.first.take());
        if let Some(reload) = self.reload.take() {
            let _ = reload.reply.send(Err(ReloadError::Stopped));
        }
        while let Ok(heard) = news.try_recv() {
            self.hear(heard);
        }
        self.stopping.send_replace(Some(window));
        self.end_all();
        loop {
            tokio::select! {
                // Whatever it is: a pattern that does not match would let nobody listen until somebody has ended.
                Some(heard) = news.recv() => if let News::Serving(_, berth) = heard {
                    berth.order(Order::End(Reason::Stopped));
                },
                left = self.tasks.join_next() => if left.is_none() {
                    self.shared.health.send_replace(Health::Stopped);
                    let pool = &self.shared.name;
                    emit_with(Level::Info, || Event::PoolStopped { pool: Arc::clone(pool) });
                    return;
                },
            }
        }
    }

    fn end_all(&self) {
        let all = self.serving.values().chain(&self.leaving);
        all.for_each(|member| member.berth.order(Order::End(Reason::Stopped)));
    }
}
