//! Who serves, who starts, who is due, who leaves. One rule covers recycling, reloading and scaling:
//!
//! ```text
//! wanted = target + those that are due (a few at a time)
//! fewer than wanted: start one           more than target: one leaves, those that are due first
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::life::{Birth, Left, tell_of_session_end};
use super::reload::{Reload, ReloadError};
use super::{Directive, Generation};
use crate::adapter::{Reason, StartError};
use crate::call::waiting::after;
use crate::custody::Run;
use crate::pool::{Health, PoolEvent, Shared};
use crate::supervision::jitter::Chance;
use crate::supervision::restarts::{Life, RestartLog, Start};
use crate::supervision::taint::fault::fault_of;
use crate::supervision::taint::{AllTainted, Place, Slots};
use crate::worker::{Autopsy, Berth, Ending, Order};

/// A worker that lives shorter than this, and answers nothing, has failed as if it had not started.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// How often a crew in trouble looks whether its newest worker serves.
const PROOF: Duration = Duration::from_millis(20);

/// What the tasks of the workers report.
pub(super) enum News {
    Serving(Id, Arc<Berth>),
    /// It finishes what it has, and takes no more.
    Leaving(usize),
}

/// A worker that serves.
pub(super) struct Member {
    pub(super) berth: Arc<Berth>,
    /// Why it is to be replaced, if it is.
    pub(super) due: Option<Due>,
    /// It has answered a call, or lived long enough to be believed.
    proved: bool,
}

/// Why a worker is to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    ByHand,
    Reload,
}

impl Due {
    fn text(self) -> &'static str {
        match self {
            Self::ByHand => "it was recycled by hand",
            Self::Reload => "the pool was reloaded",
        }
    }

    fn reason(self) -> Reason {
        Reason::Replaced(self.text().into())
    }
}

pub(super) struct Roster {
    pub(super) shared: Arc<Shared>,
    run: Option<Run>,
    pub(super) generation: Arc<Generation>,
    pub(super) next_generation: u64,
    pub(super) target: usize,
    /// Nobody is started before the first call.
    asleep: bool,
    next_name: u64,
    news: mpsc::UnboundedSender<News>,
    tasks: JoinSet<Left>,
    /// The generation of each worker that starts, by its task.
    pub(super) starting: HashMap<Id, u64>,
    /// Where each worker runs, from its start to its end, by its task.
    places: HashMap<Id, Place>,
    slots: Slots,
    pub(super) serving: BTreeMap<usize, Member>,
    /// Those that finish what they have.
    leaving: Vec<Arc<Berth>>,
    pub(super) reload: Option<Reload>,
    stopping: watch::Sender<bool>,
    restarts: RestartLog,
    pause_until: Option<Instant>,
    trouble: Option<Arc<str>>,
    first: Option<oneshot::Sender<Result<(), StartError>>>,
}

impl Roster {
    pub(super) fn new(
        shared: Arc<Shared>,
        run: Option<Run>,
        first: oneshot::Sender<Result<(), StartError>>,
    ) -> (Self, mpsc::UnboundedReceiver<News>) {
        let (news, news_in) = mpsc::unbounded_channel();
        let config = Arc::clone(&*shared.config());
        let roster = Self {
            target: config.workers,
            asleep: config.lazy,
            next_generation: 2,
            shared,
            run,
            next_name: 1,
            news,
            tasks: JoinSet::new(),
            generation: Arc::new(Generation { number: 1, config: Arc::clone(&config) }),
            starting: HashMap::new(),
            places: HashMap::new(),
            slots: Slots::new(&config.taint, config.devices.iter().cloned()),
            restarts: RestartLog::new(config.restarts, config.workers),
            serving: BTreeMap::new(),
            leaving: Vec::new(),
            reload: None,
            stopping: watch::Sender::new(false),
            pause_until: None,
            trouble: None,
            first: Some(first),
        };
        (roster, news_in)
    }

    pub(super) async fn work(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Directive>,
        mut news: mpsc::UnboundedReceiver<News>,
    ) {
        let mut sessions_at = after(Instant::now(), self.generation.config.session_ttl);
        loop {
            self.wake_up();
            self.believe();
            self.fill_up();
            self.trim();
            self.finish_reload();
            self.tell_health();
            let look_again = self.look_again();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Directive::Scale(workers)) => self.resize(workers),
                    Some(Directive::Recycle(worker, reply)) => {
                        let _ = reply.send(self.recycle(worker.as_deref()));
                    }
                    Some(Directive::Reload(pool, reply)) => self.begin_reload(pool, reply),
                    Some(Directive::Stop(done)) => {
                        self.stop(news).await;
                        let _ = done.send(());
                        return;
                    }
                    None => return self.stop(news).await,
                },
                Some(heard) = news.recv() => self.hear(heard),
                Some(left) = self.tasks.join_next_with_id() => {
                    // Serving is reported before the end, through another channel: hear it first.
                    while let Ok(heard) = news.try_recv() {
                        self.hear(heard);
                    }
                    self.bury(left);
                }
                () = self.shared.attention.notified() => {}
                () = wait_until(look_again) => {}
                () = tokio::time::sleep_until(sessions_at) => {
                    let (ended, next) = self.shared.sessions.expire();
                    for session in ended {
                        tell_of_session_end(&self.shared, &session);
                    }
                    sessions_at = after(Instant::now(), next.max(Duration::from_millis(10)));
                }
            }
        }
    }

    /// A lazy crew wakes up when a call waits.
    fn wake_up(&mut self) {
        let debug = self.generation.config.debug;
        self.shared.wants_attention.store(self.asleep || debug, Ordering::SeqCst);
        // After that was said, so that a call is either seen here or calls for attention.
        if self.asleep && self.shared.scheduler().depth() > 0 {
            self.asleep = false;
        }
    }

    /// How many there should be at present.
    pub(super) fn target(&self) -> usize {
        match self.generation.config.debug {
            _ if self.asleep => 0,
            // A worker for each call that waits.
            true => self.target.min(self.shared.scheduler().depth()),
            false => self.target,
        }
    }

    /// How many are to serve while some of them are being replaced.
    fn wanted(&self) -> usize {
        let due = self.serving.values().filter(|member| member.due.is_some()).count();
        self.target() + due.min(self.generation.config.replace_at_once)
    }

    /// Whoever answers, or lives on, shows that workers can be started.
    fn believe(&mut self) {
        for member in self.serving.values_mut().filter(|member| !member.proved) {
            if member.berth.ready_at.elapsed() >= SHORT_LIFE || member.berth.has_answered() {
                member.proved = true;
                if self.restarts.is_degraded() {
                    self.shared.announce(PoolEvent::Recovered);
                }
                self.restarts.served();
            }
        }
    }

    /// When there may be something to do though nothing happens.
    fn look_again(&self) -> Option<Instant> {
        let in_trouble = self.restarts.is_degraded() || self.pause_until.is_some();
        if in_trouble && self.serving.values().any(|member| !member.proved) {
            return Some(Instant::now() + PROOF);
        }
        self.pause_until
    }

    /// Where one more worker may run, if it may be started now. Otherwise notes when to ask again.
    fn may_start(&mut self) -> Option<Place> {
        let now = Instant::now();
        self.pause_until = match self.restarts.next(now) {
            Start::Now => None,
            Start::At(until) => Some(until),
            Start::Degraded { trial_at } if trial_at <= now && self.starting.is_empty() => None,
            Start::Degraded { trial_at } => Some(trial_at.max(now + PROOF)),
        };
        if self.pause_until.is_some() {
            return None;
        }
        match self.slots.take(now) {
            Ok(place) => Some(place),
            Err(AllTainted { until }) => {
                self.trouble = Some("workers died of each of its devices".into());
                self.pause_until = Some(until);
                None
            }
        }
    }

    fn fill_up(&mut self) {
        self.pause_until = None;
        while self.starting.len() < self.generation.config.start_batch
            && self.serving.len() + self.starting.len() < self.wanted()
            && let Some(place) = self.may_start()
        {
            self.restarts.started(Instant::now(), Chance::draw());
            let birth = Birth {
                shared: Arc::clone(&self.shared),
                run: self.run.clone(),
                generation: Arc::clone(&self.generation),
                name: format!("{}-{}", self.shared.name, self.next_name),
                slot: place.slot,
                device: place.device.clone(),
                checked: self.reload.is_some(),
                stopping: self.stopping.subscribe(),
                news: self.news.clone(),
            };
            self.next_name += 1;
            let task = self.tasks.spawn(birth.live());
            self.starting.insert(task.id(), self.generation.number);
            self.places.insert(task.id(), place);
        }
    }

    /// Lets those go that are too many: first those that are due, then those of another generation, then those with the
    /// least work.
    fn trim(&mut self) {
        while self.serving.len() > self.target {
            let scheduler = self.shared.scheduler();
            let first = self.serving.iter().min_by_key(|(post, member)| {
                let is_current = member.berth.generation == self.generation.number;
                (member.due.is_none(), is_current, scheduler.held_by(**post))
            });
            let Some(post) = first.map(|(post, _)| *post) else { return };
            drop(scheduler);
            let Some(member) = self.serving.remove(&post) else { return };
            if let Some(reload) = &mut self.reload
                && member.berth.generation != self.generation.number
            {
                reload.replaced += 1;
            }
            // At once: whoever looks at the pool next finds only those that stay.
            self.shared.retire(post);
            member.berth.order(Order::Retire(member.due.map_or(Reason::Stopped, Due::reason)));
            self.shared.announce(PoolEvent::WorkerLeaves { worker: member.berth.id.to_string() });
            self.leaving.push(member.berth);
        }
    }

    fn tell_health(&mut self) {
        let health = if self.serving.len() >= self.target() {
            if let Some(first) = self.first.take() {
                let _ = first.send(Ok(()));
            }
            Health::Ready(self.target)
        } else if let Some(reason) = self.trouble.clone() {
            let serving = self.serving.len();
            if self.restarts.is_degraded() {
                Health::Degraded { serving, reason }
            } else {
                Health::Short { serving, reason }
            }
        } else {
            Health::Starting
        };
        self.shared.health.send_if_modified(|current| {
            let changed = *current != health;
            *current = health;
            changed
        });
    }

    pub(super) fn resize(&mut self, workers: usize) {
        if workers != self.target {
            self.shared.announce(PoolEvent::Resized { from: self.target, to: workers });
        }
        self.target = workers;
        self.restarts.resize(workers);
        self.shared.target.store(workers, Ordering::Release);
    }

    /// A worker is to be replaced; it serves until its replacement does.
    fn recycle(&mut self, worker: Option<&str>) -> usize {
        let chosen = self.serving.values_mut().filter(|member| {
            member.due.is_none() && worker.is_none_or(|worker| member.berth.id.as_str() == worker)
        });
        let mark = |member: &mut Member| {
            member.due = Some(Due::ByHand);
            let reason = Due::ByHand.text().into();
            self.shared.announce(PoolEvent::WorkerDue { worker: member.berth.id.to_string(), reason });
        };
        chosen.map(mark).count()
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Serving(task, berth) => {
                self.starting.remove(&task);
                let is_old = berth.generation != self.generation.number;
                let due = (is_old && self.reload.is_some()).then_some(Due::Reload);
                let after = berth.ready_at.saturating_duration_since(berth.began_at);
                self.shared.announce(PoolEvent::WorkerReady { worker: berth.id.to_string(), after });
                self.serving.insert(berth.post, Member { berth, due, proved: false });
            }
            News::Leaving(post) => {
                if let Some(member) = self.serving.remove(&post) {
                    let worker = member.berth.id.to_string();
                    self.shared.announce(PoolEvent::WorkerLeaves { worker });
                    self.leaving.push(member.berth);
                }
            }
        }
    }

    fn bury(&mut self, left: Result<(Id, Left), JoinError>) {
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
        let Ok((_, left)) = left else {
            self.starting.remove(&task);
            return;
        };
        let failure = match left {
            Left::NotStarted { generation, error } => {
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
            Left::Ended { berth, ending } => {
                // Its index may belong to another one by now.
                if self.serving.get(&berth.post).is_some_and(|member| Arc::ptr_eq(&member.berth, &berth)) {
                    self.serving.remove(&berth.post);
                }
                self.leaving.retain(|leaving| !Arc::ptr_eq(leaving, &berth));
                let lived = berth.ready_at.elapsed() >= SHORT_LIFE;
                match ending {
                    Ending::Told => {
                        self.shared.announce(PoolEvent::WorkerEnded { worker: berth.id.to_string() });
                        None
                    }
                    Ending::Untold { autopsy, answered } => {
                        let said = autopsy.to_string();
                        self.shared.announce(PoolEvent::WorkerDied { autopsy });
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

    /// The place that a worker died of is not used for a while.
    fn look_for_taint(&mut self, place: &Place, autopsy: &Autopsy) {
        let policy = &self.generation.config.taint;
        let Some(fault) = fault_of(autopsy, &policy.patterns) else { return };
        let shown = match &place.device {
            Some(device) => format!("device {device}"),
            None => format!("slot {}", place.slot),
        };
        self.slots.taint(place, fault.clone(), Instant::now());
        self.shared.announce(PoolEvent::Tainted { place: shown, fault, lasts: policy.lasts });
    }

    /// Ends every worker, whatever it has.
    async fn stop(mut self, mut news: mpsc::UnboundedReceiver<News>) {
        self.shared.shut();
        drop(self.first.take());
        if let Some(reload) = self.reload.take() {
            let _ = reload.reply.send(Err(ReloadError::Stopped));
        }
        while let Ok(heard) = news.try_recv() {
            self.hear(heard);
        }
        self.stopping.send_replace(true);
        self.end_all();
        loop {
            tokio::select! {
                Some(News::Serving(_, berth)) = news.recv() => {
                    berth.order(Order::End(Reason::Stopped));
                }
                left = self.tasks.join_next() => if left.is_none() {
                    self.shared.health.send_replace(Health::Stopped);
                    return;
                },
            }
        }
    }

    fn end_all(&self) {
        let all = self.serving.values().map(|member| &member.berth).chain(&self.leaving);
        all.for_each(|berth| berth.order(Order::End(Reason::Stopped)));
    }
}

async fn wait_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
