//! The task that turns a loop: it receives, starts handlers, extends leases and gives back. No handler's code runs in it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::door::{Door, Outlook};
use super::extending::{SlowMessages, extend_all, period, still_leased};
use super::failpoint::{Step, reach};
use super::hand::{Hand, Leavings, Taken};
use super::handling::{Leases, NO_WORKERS, Shared, handle_all};
use super::lease_thread::Guarded;
use super::settle::{self, Outcome, Rules};
use super::trouble::Trouble;
use super::window::{Concurrency, Window};
use super::{Control, End, Heartbeat, LoopError, Orders, RunOptions};
use crate::mailbox::{MAX_MESSAGES, Mailbox, MailboxError, Message};
use crate::telemetry::{Event, Level, emit_with};

/// How often an idle loop shows that it lives.
const BEAT: Duration = Duration::from_secs(5);
/// How long handlers that are cancelled may take to notice; one that blocks its thread never does.
const CUT_PATIENCE: Duration = Duration::from_secs(1);
/// How long giving back may take after that.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// What handles a message.
pub(super) type Work = Arc<dyn Fn(&Message) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// What a loop is made of.
pub(super) struct Engine {
    pub(super) control: Control,
    pub(super) mailbox: Arc<dyn Mailbox>,
    pub(super) work: Work,
    /// Where messages wait for those who handle them, if that is not the host itself.
    pub(super) door: Option<Door>,
    pub(super) rules: Arc<Rules>,
    pub(super) concurrency: Concurrency,
    pub(super) prefetch: usize,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.control.name())
            .field("mailbox", &self.mailbox)
            .field("concurrency", &self.concurrency)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// What a receive brought, and how much it had asked for.
type Received = (usize, Result<Vec<Message>, MailboxError>);

/// One run of a loop. What is dropped in the middle is given back: the tasks end before `leavings` does.
struct Turning<'a> {
    engine: &'a Engine,
    options: RunOptions,
    window: Window,
    orders: watch::Receiver<Orders>,
    receiving: FuturesUnordered<BoxFuture<'a, Received>>,
    /// The last receive brought all that it asked for, so there may be more.
    is_backlog: bool,
    extending: Option<BoxFuture<'a, bool>>,
    extend_at: Instant,
    door: Option<Door>,
    /// No receive before this.
    not_before: Instant,
    iterations: u64,
    is_closed: bool,
    /// Each handles one message after another, until none waits.
    handlers: JoinSet<()>,
    returns: JoinSet<()>,
    shared: Arc<Shared>,
    _guarded: Guarded,
    _leavings: Leavings,
}

impl Engine {
    pub(super) async fn run(&self, options: RunOptions) -> Result<(), LoopError> {
        options.check()?;
        let _run = self.control.begin()?;
        emit_with(Level::Info, || Event::LoopStarted { name: self.control.name().into() });
        let hand = Arc::new(Hand::new(self.control.clone()));
        let window =
            Window::new(self.concurrency, self.prefetch, options.visibility_timeout, self.control.handled());
        // Whoever wants messages given up for want of workers does not want them to wait.
        let door = self.door.clone().filter(|_| !self.rules.policy.buries_at_once(NO_WORKERS));
        let shared = Arc::new(Shared {
            control: self.control.clone(),
            hand: Arc::clone(&hand),
            trouble: Trouble::new(self.control.clone()),
            rules: Arc::clone(&self.rules),
            door,
            slow: SlowMessages::default(),
            leases: Leases {
                extended: Heartbeat::default(),
                visibility: options.visibility_timeout,
                shutdown: options.shutdown_timeout,
                longest: AtomicU64::new(0),
                told: AtomicBool::new(false),
            },
            asked: AtomicUsize::new(0),
            enough: AtomicUsize::new(enough(&window)),
            room: Notify::new(),
        });
        let limited = settle::set_limit(&*self.mailbox, &self.rules, &self.control, &shared.trouble).await;
        limited.map_err(LoopError::Options)?;
        let guarded = Guarded::new(Arc::clone(&shared)).map_err(|error| LoopError::Failed {
            name: self.control.name().to_owned(),
            reason: format!("cannot start the thread that extends leases: {error}"),
        })?;
        let now = Instant::now();
        let turning = Turning {
            engine: self,
            options,
            window,
            orders: self.control.orders(),
            receiving: FuturesUnordered::new(),
            is_backlog: false,
            extending: None,
            extend_at: now + period(options.visibility_timeout),
            door: self.door.clone(),
            not_before: now,
            iterations: 0,
            is_closed: false,
            handlers: JoinSet::new(),
            returns: JoinSet::new(),
            shared,
            _guarded: guarded,
            _leavings: Leavings { hand, control: self.control.clone() },
        };
        turning.until_end().await;
        emit_with(Level::Info, || Event::LoopStopped {
            name: self.control.name().into(),
            handled: self.control.handled(),
        });
        Ok(())
    }
}

/// From how many in hand on there is no room worth a receive.
fn enough(window: &Window) -> usize {
    window.all() - MAX_MESSAGES.min(window.all() / 2)
}

impl<'a> Turning<'a> {
    async fn until_end(mut self) {
        loop {
            self.engine.control.heartbeat().beat();
            let wanted = *self.orders.borrow_and_update();
            match wanted.end {
                End::Cut => return self.cut().await,
                End::Finish => self.give_back_waiting(),
                End::Not if !wanted.receives() => self.give_back_waiting(),
                End::Not => {}
            }
            let ends = self.ends(wanted);
            self.start_waiting();
            let is_idle =
                self.handlers.is_empty() && self.returns.is_empty() && self.shared.hand.waiting() == 0;
            if ends && is_idle {
                return;
            }
            if !self.is_open() {
                // Others may be able to handle what this one is not.
                self.stop_receiving();
            } else if !ends && wanted.receives() {
                self.receive();
            }
            if let (false, Some(door)) = (wanted.receives(), &self.door) {
                door.take_back();
            }
            self.extend(wanted);
            self.turn(wanted).await;
        }
    }

    fn ends(&self, wanted: Orders) -> bool {
        let is_done = self.options.max_iterations.is_some_and(|most| self.iterations >= most);
        wanted.end != End::Not || self.is_closed || is_done
    }

    /// Waits for the next thing to happen.
    async fn turn(&mut self, wanted: Orders) {
        let now = Instant::now();
        let mut wake_at = now + BEAT;
        if !wanted.is_overdue() && self.extending.is_none() {
            wake_at = wake_at.min(self.extend_at);
        }
        if self.receiving.is_empty() && self.not_before > now {
            wake_at = wake_at.min(self.not_before);
        }
        let began = std::time::Instant::now();
        tokio::select! {
            biased;
            _ = self.orders.changed() => {}
            Some(_) = self.handlers.join_next(), if !self.handlers.is_empty() => {
                // Many end together, and one turn for all of them is enough.
                while self.handlers.try_join_next().is_some() {}
            }
            () = self.shared.room.notified(), if wanted.receives() => {}
            Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
            Some((asked, mut received)) = self.receiving.next(), if !self.receiving.is_empty() => {
                // It wakes several times during a lease. If it did not, handlers have blocked the runtime, and the leases of what came
                // meanwhile may be over.
                if let (true, Ok(messages)) = (began.elapsed() > self.options.visibility_timeout / 2, &mut received) {
                    *messages = still_leased(std::mem::take(messages), &self.shared).await;
                }
                self.received(asked, received);
            }
            in_order = or_pending(&mut self.extending) => self.extended(in_order),
            () = changed(&mut self.door) => {}
            () = sleep_until(wake_at) => {}
        }
    }

    /// Whether messages can be handled at present.
    fn is_open(&self) -> bool {
        let reason = match self.shared.door.as_ref().map_or(Outlook::Open, Door::outlook) {
            Outlook::Open => None,
            Outlook::Shut(reason) | Outlook::Over(reason) => Some(reason),
        };
        let is_open = reason.is_none();
        self.shared.trouble.note_pool(reason);
        is_open
    }

    /// Asks for as many messages as there is room for. One receive waits for them. While there is a backlog, others take what is
    /// at hand, each a full batch: a backend that syncs does many of them at once.
    fn receive(&mut self) {
        if self.window.look(self.engine.control.handled()) {
            self.shared.enough.store(enough(&self.window), Ordering::Relaxed);
        }
        let most = self.window.all();
        while self.not_before <= Instant::now() {
            let asked = self.shared.asked.load(Ordering::Relaxed);
            let held = self.handlers.len() + self.shared.hand.waiting() + asked;
            let room = most.saturating_sub(held).min(MAX_MESSAGES);
            let mut options = self.options.receive(room);
            if !self.receiving.is_empty() {
                // Iterations are counted one after another.
                let is_greedy = self.is_backlog && self.options.max_iterations.is_none();
                if !is_greedy || room < MAX_MESSAGES {
                    return;
                }
                options = options.wait(Duration::ZERO);
            }
            if room == 0 {
                return;
            }
            let engine: &'a Engine = self.engine;
            reach(Step::Receive);
            self.shared.asked.fetch_add(room, Ordering::Relaxed);
            self.receiving.push(Box::pin(async move { (room, engine.mailbox.receive(options).await) }));
        }
    }

    fn received(&mut self, asked: usize, received: Result<Vec<Message>, MailboxError>) {
        self.shared.asked.fetch_sub(asked, Ordering::Relaxed);
        self.is_backlog = received.as_ref().is_ok_and(|messages| messages.len() == asked);
        match received {
            Ok(messages) => {
                if !messages.is_empty() {
                    reach(Step::Received);
                }
                self.iterations += 1;
                self.shared.trouble.is_over();
                self.shared.hand.put(messages);
            }
            Err(MailboxError::Closed(_)) => self.is_closed = true,
            Err(error) => self.not_before = Instant::now() + self.shared.trouble.note(&error),
        }
    }

    /// What a receive has leased and not handed over, the mailbox takes back by itself.
    fn stop_receiving(&mut self) {
        self.receiving.clear();
        self.shared.asked.store(0, Ordering::Relaxed);
        self.is_backlog = false;
    }

    fn start_waiting(&mut self) {
        while self.handlers.len() < self.window.handling() {
            let Some(first) = self.shared.hand.start() else { break };
            let (work, shared) = (Arc::clone(&self.engine.work), Arc::clone(&self.shared));
            self.handlers.spawn(handle_all(work, first, shared));
        }
    }

    /// What was received and is not started goes back at once, in one batch.
    fn give_back_waiting(&mut self) {
        self.stop_receiving();
        let shared = Arc::clone(&self.shared);
        let (places, messages) = shared.hand.begin_return();
        if messages.is_empty() {
            return;
        }
        self.returns.spawn(async move {
            settle::release(&messages, &shared.control, &shared.trouble).await;
            shared.hand.end_return(&places);
        });
    }

    /// Begins to extend the leases of all that is in hand, if it is time; also while the loop ends, until nobody waits for that.
    fn extend(&mut self, wanted: Orders) {
        let now = Instant::now();
        if self.extending.is_some() || now < self.extend_at || wanted.is_overdue() {
            return;
        }
        self.extend_at = now + period(self.options.visibility_timeout);
        let shared = Arc::clone(&self.shared);
        self.extending = Some(Box::pin(async move { extend_all(&shared).await }));
    }

    fn extended(&mut self, in_order: bool) {
        self.extending = None;
        if !in_order {
            let soon = Instant::now() + period(self.options.visibility_timeout) / 3;
            self.extend_at = self.extend_at.min(soon);
        }
    }

    /// The handlers hear of it by themselves; what they had is given back together with what waits.
    async fn cut(mut self) {
        self.stop_receiving();
        let patience = Instant::now() + CUT_PATIENCE;
        while let Ok(Some(_)) = timeout_at(patience, self.handlers.join_next()).await {}
        let Taken { started, not_started } = self.shared.hand.take_all();
        if !(started.is_empty() && not_started.is_empty()) {
            self.engine.control.note_cut_short();
        }
        let Shared { control, trouble, .. } = &*self.shared;
        let given_back = async {
            settle::release(&not_started, control, trouble).await;
            settle::nack(&started, control, trouble).await;
        };
        // If the backend does not answer, the leases run out.
        let _ = timeout(LAST_PATIENCE, given_back).await;
    }
}

async fn or_pending<T>(slot: &mut Option<BoxFuture<'_, T>>) -> T {
    match slot {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn changed(door: &mut Option<Door>) {
    match door {
        Some(door) => door.changed().await,
        None => pending().await,
    }
}
