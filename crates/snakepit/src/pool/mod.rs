//! A pool: workers of one kind behind a queue.
//!
//! Owns who serves which call ([`scheduler`]), which calls belong together ([`session`]) and how many workers there are
//! ([`crew`]). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

mod config;
mod crew;
mod estimate;
mod event;
mod handing;
mod queue_key;
mod reference;
mod scheduler;
mod session;
mod slot;
mod stats;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

pub use config::{Affinity, CancelGrace, Pool};
pub(crate) use crew::{Crew, prepare};
pub use crew::{ReloadError, Reloaded};
pub use event::{PoolEvent, PoolEvents};
pub(crate) use queue_key::QueueKey;
pub use reference::{PoolRef, PoolStatus, WorkerStatus};
pub use session::SessionInfo;
pub(crate) use session::{InUse, StoreError};
pub(crate) use slot::Slot;
pub use stats::{CommandGrowth, PoolStats, TaintedPlace, WorkerStats};

use crate::adapter::{Introduction, Reason};
use crate::call::ticket::Place;
use crate::call::waiting::{Plan, Waiting};
use crate::call::{Call, CallError, CallId, Extras, Input};
use crate::supervision::growth::Growth;
use crate::tool::Tools;
use crate::value::{Encoded, Value};
use crate::worker::{Berth, Order};
use estimate::Estimate;
use handing::Handing;
pub(crate) use scheduler::Wish;
use scheduler::{Load, Placed, Scheduler};
use session::{Sessions, Visit};

/// A command as a pool knows it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: Arc<str>,
    pub(crate) estimate: Estimate,
}

impl Command {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), estimate: Estimate::default() }
    }
}

/// The pools of an engine; the first is the one that calls go to unless they say otherwise.
pub(crate) struct Directory(Vec<Arc<Shared>>);

impl Directory {
    pub(crate) fn new(pools: Vec<Arc<Shared>>) -> Arc<Self> {
        Arc::new(Self(pools))
    }

    pub(crate) fn first(&self) -> Result<Arc<Shared>, CallError> {
        self.0
            .first()
            .map(Arc::clone)
            .ok_or_else(|| CallError::NoSuchPool { name: "at all".into(), known: "none".into() })
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Shared>, CallError> {
        self.0.iter().find(|pool| &*pool.name == name).map(Arc::clone).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|pool| &*pool.name).collect();
            CallError::NoSuchPool { name: name.into(), known: known.join(", ") }
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Shared>> {
        self.0.iter()
    }
}

/// How it stands with a pool's workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Starting,
    /// As many workers serve as were asked for: so many.
    Ready(usize),
    /// None does any more.
    Stopped,
    /// Fewer do; why the last one could not be started, or died.
    Short {
        serving: usize,
        reason: Arc<str>,
    },
    /// They fail again and again, and only one at a time is tried.
    Degraded {
        serving: usize,
        reason: Arc<str>,
    },
}

/// What callers, workers and the crew of a pool share.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    /// What it is made of at present: a reload may change it.
    config: ArcSwap<Pool>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) sessions: Sessions,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) health: watch::Sender<Health>,
    events: event::Announcer,
    /// Whether the crew wants to hear of calls that wait.
    pub(crate) wants_attention: AtomicBool,
    pub(crate) attention: Notify,
    /// Somebody may wait for the last call to end.
    done: Notify,
    /// Calls that workers hold.
    in_hand: AtomicUsize,
    takes_many: AtomicBool,
    growth: Mutex<Growth>,
    scheduler: Mutex<Scheduler>,
    commands: RwLock<HashMap<Box<str>, Arc<Command>>>,
}

/// Numbers of calls, unique in the process: a call keeps its number wherever it goes.
static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_call_id() -> CallId {
    CallId(NEXT_CALL.fetch_add(1, Ordering::Relaxed))
}

impl Shared {
    pub(crate) fn new(config: Pool, tools: Arc<Tools>, runtime: tokio::runtime::Handle) -> Arc<Self> {
        let config = config.settled();
        Arc::new(Self {
            name: config.name.as_str().into(),
            tools,
            sessions: Sessions::new(config.session_ttl, config.max_sessions),
            runtime,
            health: watch::Sender::new(Health::Starting),
            events: event::Announcer::default(),
            wants_attention: AtomicBool::new(false),
            attention: Notify::new(),
            done: Notify::new(),
            in_hand: AtomicUsize::new(0),
            takes_many: AtomicBool::new(false),
            growth: Mutex::default(),
            scheduler: Mutex::new(Scheduler::new(config.queue_limit)),
            commands: RwLock::new(HashMap::new()),
            config: ArcSwap::from_pointee(config),
        })
    }

    pub(crate) fn config(&self) -> arc_swap::Guard<Arc<Pool>> {
        self.config.load()
    }

    /// New settings, from a reload. What a worker was started with stays as it was until it is replaced.
    fn adopt(&self, config: &Arc<Pool>) {
        self.scheduler().set_limit(config.queue_limit);
        self.config.store(Arc::clone(config));
    }

    pub(crate) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which command leaves how much memory behind.
    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls workers hold.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Relaxed)
    }

    /// What is known about a command. One that no worker has announced is not remembered.
    pub(crate) fn command(&self, name: &str) -> Arc<Command> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map_or_else(|| Arc::new(Command::new(name)), Arc::clone)
    }

    /// What a worker says about itself holds for all workers of its pool.
    pub(crate) fn learn(&self, introduction: &Introduction) {
        self.takes_many.store(introduction.takes_many, Ordering::Relaxed);
        let mut known = self.commands.write().unwrap_or_else(PoisonError::into_inner);
        for name in &introduction.commands {
            known.entry(name.as_str().into()).or_insert_with(|| Arc::new(Command::new(name)));
        }
    }

    /// Whether many calls may travel together.
    pub(crate) fn takes_many(&self) -> bool {
        self.takes_many.load(Ordering::Relaxed)
    }

    pub(crate) fn command_names(&self) -> Vec<String> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<String> = known.keys().map(std::string::ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    /// Gives a call to a worker, or puts it into the queue.
    pub(crate) fn submit(self: &Arc<Self>, mut call: Call, limit: Limit) -> Result<(), CallError> {
        let wish = match call.extras.as_deref_mut() {
            Some(extras) if extras.session.is_some() => self.wish_of_session(extras)?,
            _ => Wish::Any,
        };
        self.submit_to(call, wish, limit)
    }

    pub(crate) fn submit_to(self: &Arc<Self>, call: Call, wish: Wish, limit: Limit) -> Result<(), CallError> {
        let placed = self.scheduler().offer(call, wish, limit);
        match placed {
            Placed::Now(call) => {
                self.hand_over(call);
                Ok(())
            }
            Placed::Queued => {
                self.call_attention();
                Ok(())
            }
            Placed::Saturated(call, depth) => {
                withhold(call);
                Err(CallError::Saturated { pool: self.name.to_string(), depth })
            }
            Placed::Busy(call) => {
                let session = call.session().unwrap_or_default().to_owned();
                withhold(call);
                let worker =
                    self.sessions.berth(&session).map_or_else(String::new, |berth| berth.id.to_string());
                Err(CallError::SessionBusy { session, worker })
            }
            Placed::Closed(call) => {
                withhold(call);
                Err(CallError::Stopped)
            }
        }
    }

    /// A call waits: a crew that has none, or too few, to serve it may want to know.
    fn call_attention(&self) {
        if self.wants_attention.load(Ordering::Relaxed) {
            self.attention.notify_one();
        }
    }

    fn wish_of_session(&self, extras: &mut Extras) -> Result<Wish, CallError> {
        let visited = self.sessions.visit(extras.session.as_deref().unwrap_or_default());
        let (visit, in_use) = visited.ok_or_else(|| CallError::TooManySessions {
            pool: self.name.to_string(),
            limit: self.sessions.limit(),
        })?;
        extras.session_in_use = Some(in_use);
        Ok(match visit {
            Visit::New => Wish::Any,
            Visit::At(berth) if !self.scheduler().serves(&berth) => Wish::Any,
            Visit::At(berth) => match self.config().affinity {
                Affinity::Hint => Wish::Rather(berth.post),
                Affinity::StrictQueue => Wish::Only(berth.post),
                Affinity::StrictFailFast => Wish::OnlyNow(berth.post),
            },
        })
    }

    /// A call that its worker never started.
    pub(crate) fn requeue(self: &Arc<Self>, call: Call) {
        let placed = self.scheduler().requeue(call);
        match placed {
            Placed::Now(call) => self.hand_over(call),
            Placed::Closed(call) => call.fail(CallError::Stopped),
            Placed::Queued => self.call_attention(),
            Placed::Saturated(..) | Placed::Busy(_) => {}
        }
    }

    /// A worker takes no more calls; what only it was to serve goes to the others.
    pub(crate) fn retire(self: &Arc<Self>, post: usize) {
        let bound = self.scheduler().retire(post);
        for call in bound {
            self.requeue(call);
        }
    }

    /// Takes back a call that still waits. None: a worker has it, or had it.
    pub(crate) fn withdraw(&self, key: QueueKey) -> Option<Call> {
        let mut scheduler = self.scheduler();
        let call = scheduler.withdraw(key);
        self.note_if_done(&scheduler);
        call
    }

    /// Tells a worker that a session it has served is over.
    pub(crate) fn tell_session_end(self: &Arc<Self>, berth: &Arc<Berth>, session: &str) {
        let args = BTreeMap::from([("session", session)]);
        if let Ok(mut told) = self.own_call(berth, "snakepit.session_end", &args) {
            self.runtime.spawn(async move { told.value().await });
        }
    }

    /// Asks a worker's health hook.
    pub(crate) async fn ask_health(self: &Arc<Self>, berth: &Arc<Berth>) -> Result<Value, CallError> {
        let mut waiting = self.own_call(berth, "snakepit.health", &BTreeMap::<&str, &str>::new())?;
        let value = waiting.value().await?;
        value.to_value().map_err(|source| CallError::Result { command: "snakepit.health".into(), source })
    }

    /// A call of the engine's own to one worker, before those of others.
    fn own_call(
        self: &Arc<Self>,
        berth: &Arc<Berth>,
        name: &str,
        args: &BTreeMap<&str, &str>,
    ) -> Result<Waiting, CallError> {
        let arguments =
            Encoded::encode(args).map_err(|source| CallError::Arguments { command: name.into(), source })?;
        let plan = Plan {
            command: self.command(name),
            input: Input::One(arguments),
            // A worker that is busy for long is told late, not never.
            timeout: self.config().call_timeout,
            queue_timeout: self.config().call_timeout,
            priority: i8::MAX,
            extras: None,
        };
        Waiting::begin_at(Arc::clone(self), plan, Wish::Only(berth.post))
    }

    /// A worker has, or may have, a free place: gives it what waits.
    pub(crate) fn feed(&self, post: usize) {
        loop {
            // Taken in a statement of its own, so that the lock is free when the worker gets the call.
            let next = self.scheduler().next_for(post);
            match next {
                None => return,
                Some(call) => self.hand_over(call),
            }
        }
    }

    /// Gives a call to the worker that was chosen for it.
    fn hand_over(&self, mut call: Call) {
        let Some(slot) = &call.slot else { return };
        let berth = Arc::clone(slot.berth());
        if let Some(owner) = self.other_owner(&call, &berth) {
            // Two calls of a new session were under way at the same time, and the other one came first.
            drop(call.slot.take());
            let placed = self.scheduler().offer(call, Wish::Only(owner.post), Limit::Waived);
            return match placed {
                Placed::Now(call) => self.hand_over(call),
                Placed::Closed(call) => call.fail(CallError::Stopped),
                Placed::Queued | Placed::Saturated(..) | Placed::Busy(_) => {}
            };
        }
        // Its caller went away while it was on its way here.
        if call.is_abandoned() {
            return;
        }
        if berth.count(&call.command.name) {
            self.attention.notify_one();
        }
        if berth.serves_one {
            berth.pool.retire(berth.post);
            berth.order(Order::Retire(Reason::Replaced("each call gets a worker of its own".into())));
        }
        let _handing = Handing::begin();
        Arc::clone(&berth.handle).execute(call);
    }

    /// The worker that a call's session belongs to, if that is another one.
    fn other_owner(&self, call: &Call, berth: &Arc<Berth>) -> Option<Arc<Berth>> {
        let session = call.session()?;
        match self.config().affinity {
            Affinity::Hint => {
                self.sessions.served_by(session, berth);
                None
            }
            Affinity::StrictQueue | Affinity::StrictFailFast => {
                self.sessions.claim(session, berth, |owner| self.scheduler().serves(owner))
            }
        }
    }

    fn release(&self, berth: &Arc<Berth>, load: Load, places: Option<usize>) {
        let next = {
            let mut scheduler = self.scheduler();
            scheduler.release(berth, load);
            if let Some(places) = places {
                scheduler.set_places(berth, places);
            }
            self.note_if_done(&scheduler);
            if Handing::feeds_later(&berth.pool, load.post) { None } else { scheduler.next_for(load.post) }
        };
        if let Some(call) = next {
            self.hand_over(call);
            self.feed(load.post);
        }
    }

    /// Gives back what waits, and takes no more calls but nested ones.
    pub(crate) fn close(&self) {
        let waiting = self.scheduler().close();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
    }

    /// Takes no more calls at all: the workers are about to end.
    pub(crate) fn shut(&self) {
        let waiting = self.scheduler().shut();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
    }

    /// Whether it was closed and what was under way is finished, at workers that leave, too.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduler().is_drained() && self.in_hand.load(Ordering::SeqCst) == 0
    }

    fn note_if_done(&self, scheduler: &Scheduler) {
        if scheduler.is_drained() && self.in_hand.load(Ordering::SeqCst) == 0 {
            self.done.notify_waiters();
        }
    }

    /// Until what was under way when it was closed is finished.
    pub(crate) async fn finished(&self) {
        loop {
            let done = self.done.notified();
            if self.is_done() {
                return;
            }
            done.await;
        }
    }
}

/// A refused call is answered by the caller itself; its end must not be taken for the pool's.
fn withhold(call: Call) {
    call.fail(CallError::Cancelled);
}

impl Call {
    /// How long it will take, as far as one can tell.
    pub(crate) fn nanos(&self) -> u32 {
        // A stream takes as long as its reader does.
        let each = if self.stream_credit().is_some() { u32::MAX } else { self.command.estimate.nanos() };
        match &self.input {
            Input::One(_) => each,
            Input::Many(inputs) => each.saturating_mul(inputs.len() as u32),
        }
    }
}

impl Shared {
    /// Where a caller's call is, for whoever wants to reach it.
    pub(crate) fn withdraw_or_locate(&self, ticket: &crate::call::ticket::Ticket) -> Whereabouts {
        loop {
            match ticket.place() {
                None => return Whereabouts::Nowhere,
                Some(Place::With(berth)) => return Whereabouts::With(berth),
                Some(Place::Queued(key)) => match self.withdraw(key) {
                    Some(call) => return Whereabouts::Withdrawn(Box::new(call)),
                    None if ticket.has_ended() => return Whereabouts::Nowhere,
                    // It was on its way to a worker between the two looks; its place is set under the lock that
                    // withdraw has taken, so the next look sees it.
                    None => {}
                },
            }
        }
    }
}

/// Whether the queue's limit holds for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Holds,
    /// The caller bounds itself.
    Waived,
}

/// Where a call was found.
pub(crate) enum Whereabouts {
    Withdrawn(Box<Call>),
    With(Arc<Berth>),
    Nowhere,
}

/// The longest that the error of a dead worker's call waits to learn how it died.
pub(crate) const AUTOPSY_PATIENCE: Duration = Duration::from_millis(40);
