//! A loop over a mailbox, and the task of its run, which receives, starts handlers, extends leases and gives messages
//! back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::availability::LoopAvailability;
use super::message_window::{Concurrency, MessageWindow};
use super::{PoolGate, PoolReadiness, RunContext, SubmittedCalls};
use crate::failpoint::{LoopFailpoint, reach};
use crate::handle::{NO_WORKERS, handle_all};
use crate::health::real_now;
use crate::lease::{
    LeaseGuard, LeaseTimes, LeasedMessages, ReturnOnDrop, SlowMessages, TakenMessages, extend_all,
    extension_period, retry_period, still_leased,
};
use crate::mailbox::{MAX_MESSAGES, Mailbox, MailboxError, Message};
use crate::settle::{self, HandlingOutcome, SettlementRules};
use crate::telemetry::{Event, Level, emit_with};
use crate::{Control, EndOrder, LoopError, LoopOrders, RunOptions};

/// The period of an idle loop's heartbeat.
const BEAT: Duration = Duration::from_secs(5);
/// The time in which cancelled handlers must notice. A handler that blocks its thread never does.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time in which messages must then be given back.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
/// A wait longer than this fraction of a lease means that handlers have blocked the runtime.
const BLOCKED_PART_OF_LEASE: u32 = 2;

/// The function that handles a message.
pub(crate) type MessageHandler = Arc<dyn Fn(&Message) -> BoxFuture<'static, HandlingOutcome> + Send + Sync>;

/// A loop over a mailbox, as used by [`MainLoop`](crate::MainLoop) and [`PoolLoop`](crate::PoolLoop).
pub(crate) struct MessageLoop {
    pub(crate) control: Control,
    pub(crate) mailbox: Arc<dyn Mailbox>,
    pub(crate) work: MessageHandler,
    /// The gate to the pool that handles messages. `None` if the host itself handles them.
    pub(crate) gate: Option<PoolGate>,
    /// The calls of the messages. `None` if the host itself handles them.
    pub(crate) submitted: Option<SubmittedCalls>,
    pub(crate) rules: Arc<SettlementRules>,
    pub(crate) concurrency: Concurrency,
    pub(crate) prefetch: usize,
}

impl fmt::Debug for MessageLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLoop")
            .field("name", &self.control.name())
            .field("mailbox", &self.mailbox)
            .field("concurrency", &self.concurrency)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// The number of messages that a receive asked for, and its result.
type ReceiveResult = (usize, Result<Vec<Message>, MailboxError>);

/// One run of a loop. If it is dropped before its end, its messages are given back: the tasks end before
/// `_return_on_drop` is dropped.
struct MessageLoopRun<'a> {
    message_loop: &'a MessageLoop,
    options: RunOptions,
    window: MessageWindow,
    orders: watch::Receiver<LoopOrders>,
    receiving: FuturesUnordered<BoxFuture<'a, ReceiveResult>>,
    /// Whether the last receive returned all the messages it asked for, so that there may be more.
    is_backlog: bool,
    extending: Option<BoxFuture<'a, bool>>,
    extend_at: Instant,
    gate: Option<PoolGate>,
    /// The time before which nothing is received.
    not_before: Instant,
    iterations: u64,
    is_closed: bool,
    /// The handler tasks. Each handles one message after another until none is waiting.
    handlers: JoinSet<()>,
    returns: JoinSet<()>,
    context: Arc<RunContext>,
    _lease_guard: LeaseGuard,
    _return_on_drop: ReturnOnDrop,
}

impl MessageLoop {
    pub(crate) async fn run(&self, options: RunOptions) -> Result<(), LoopError> {
        options.check()?;
        let _run = self.control.begin()?;
        emit_with(Level::Info, || Event::LoopStarted { name: self.control.name().into() });
        let window = MessageWindow::new(
            self.concurrency,
            self.prefetch,
            options.visibility_timeout,
            self.control.handled(),
        );
        let context = Arc::new(RunContext {
            control: self.control.clone(),
            leased: LeasedMessages::new(self.control.clone()),
            availability: LoopAvailability::new(self.control.clone()),
            rules: Arc::clone(&self.rules),
            // If the policy gives up messages for lack of workers, messages do not wait for a worker.
            gate: self.gate.clone().filter(|_| !self.rules.policy.buries_at_once(NO_WORKERS)),
            submitted: self.submitted.clone(),
            slow: SlowMessages::default(),
            leases: LeaseTimes::new(&options),
            requested: AtomicUsize::new(0),
            enough: AtomicUsize::new(enough(&window)),
            room: Notify::new(),
        });
        settle::write_delivery_limit(&*self.mailbox, &context).await.map_err(LoopError::Options)?;
        let lease_guard = LeaseGuard::new(Arc::clone(&context))
            .map_err(|source| LoopError::Thread { name: self.control.name().to_owned(), source })?;
        let now = Instant::now();
        let run = MessageLoopRun {
            message_loop: self,
            options,
            window,
            orders: self.control.orders(),
            receiving: FuturesUnordered::new(),
            is_backlog: false,
            extending: None,
            extend_at: now + extension_period(options.visibility_timeout),
            gate: self.gate.clone(),
            not_before: now,
            iterations: 0,
            is_closed: false,
            handlers: JoinSet::new(),
            returns: JoinSet::new(),
            _lease_guard: lease_guard,
            _return_on_drop: ReturnOnDrop(Arc::clone(&context)),
            context,
        };
        run.until_end().await;
        emit_with(Level::Info, || Event::LoopStopped {
            name: self.control.name().into(),
            handled: self.control.handled(),
        });
        Ok(())
    }
}

/// Returns the number of messages from which another receive is not worth its cost.
fn enough(window: &MessageWindow) -> usize {
    window.all() - MAX_MESSAGES.min(window.all() / 2)
}

impl<'a> MessageLoopRun<'a> {
    async fn until_end(mut self) {
        loop {
            self.message_loop.control.heartbeat().beat();
            let wanted = *self.orders.borrow_and_update();
            match wanted.end {
                EndOrder::Cut => return self.cut().await,
                EndOrder::Not if wanted.receives() => {}
                EndOrder::Finish | EndOrder::Not => self.give_back_waiting(),
            }
            let ends = self.ends(wanted);
            self.start_waiting();
            let is_idle =
                self.handlers.is_empty() && self.returns.is_empty() && self.context.leased.waiting() == 0;
            if ends && is_idle {
                return;
            }
            if !self.can_handle() {
                // Another loop may be able to handle the messages that the current receives would return.
                self.stop_receiving();
            } else if !ends && wanted.receives() {
                self.receive();
            }
            if !wanted.receives() {
                self.context.withdraw_queued();
            }
            self.extend(wanted);
            self.wait(wanted).await;
        }
    }

    fn ends(&self, wanted: LoopOrders) -> bool {
        let is_done = self.options.max_iterations.is_some_and(|most| self.iterations >= most);
        wanted.end != EndOrder::Not || self.is_closed || is_done
    }

    /// Waits for the next event.
    async fn wait(&mut self, wanted: LoopOrders) {
        let now = Instant::now();
        let mut wake_at = now + BEAT;
        if !wanted.is_overdue() && self.extending.is_none() {
            wake_at = wake_at.min(self.extend_at);
        }
        if self.receiving.is_empty() && self.not_before > now {
            wake_at = wake_at.min(self.not_before);
        }
        let began = real_now();
        tokio::select! {
            biased;
            _ = self.orders.changed() => {}
            Some(_) = self.handlers.join_next(), if !self.handlers.is_empty() => {
                // Many handlers end together, and one iteration is enough for all of them.
                while self.handlers.try_join_next().is_some() {}
            }
            () = self.context.room.notified(), if wanted.receives() => {}
            Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
            Some((asked, mut received)) = self.receiving.next(), if !self.receiving.is_empty() => {
                // This task wakes several times during a lease. If it did not, the leases of the messages that arrived
                // meanwhile may have expired.
                let was_blocked = began.elapsed() > self.options.visibility_timeout / BLOCKED_PART_OF_LEASE;
                if let (true, Ok(messages)) = (was_blocked, &mut received) {
                    *messages = still_leased(std::mem::take(messages), &self.context).await;
                }
                self.received(asked, received);
            }
            Some(all_extended) = OptionFuture::from(self.extending.as_mut()) => self.extended(all_extended),
            Some(()) = OptionFuture::from(self.gate.as_mut().map(PoolGate::changed)) => {}
            () = sleep_until(wake_at) => {}
        }
    }

    /// Reports whether messages can be handled at present.
    fn can_handle(&self) -> bool {
        let reason = match self.context.pool_readiness() {
            PoolReadiness::Ready => None,
            PoolReadiness::NoWorker(reason) | PoolReadiness::Stopped(reason) => Some(reason),
        };
        let can_handle = reason.is_none();
        self.context.availability.set_pool_trouble(reason);
        can_handle
    }

    /// Requests as many messages as there is room for. One receive waits for messages. While there is a backlog,
    /// further receives take full batches without waiting, because a mailbox that syncs a file handles many of them in
    /// one sync.
    fn receive(&mut self) {
        if self.window.adapt(self.message_loop.control.handled()) {
            self.context.enough.store(enough(&self.window), Ordering::Relaxed);
        }
        let most = self.window.all();
        while self.not_before <= Instant::now() {
            let requested = self.context.requested.load(Ordering::Relaxed);
            let held = self.handlers.len() + self.context.leased.waiting() + requested;
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
            let message_loop: &'a MessageLoop = self.message_loop;
            reach(LoopFailpoint::Receive);
            self.context.requested.fetch_add(room, Ordering::Relaxed);
            self.receiving.push(Box::pin(async move { (room, message_loop.mailbox.receive(options).await) }));
        }
    }

    fn received(&mut self, asked: usize, received: Result<Vec<Message>, MailboxError>) {
        self.context.requested.fetch_sub(asked, Ordering::Relaxed);
        self.is_backlog = received.as_ref().is_ok_and(|messages| messages.len() == asked);
        match received {
            Ok(messages) => {
                if !messages.is_empty() {
                    reach(LoopFailpoint::Received);
                }
                self.iterations += 1;
                self.context.availability.mailbox_works();
                self.context.leased.add(messages);
            }
            Err(MailboxError::Closed(_)) => self.is_closed = true,
            Err(error) => {
                self.not_before = Instant::now() + self.context.availability.mailbox_failed(&error);
            }
        }
    }

    /// Drops the running receives. The mailbox takes back the messages that they had leased but not delivered.
    fn stop_receiving(&mut self) {
        self.receiving.clear();
        self.context.requested.store(0, Ordering::Relaxed);
        self.is_backlog = false;
    }

    fn start_waiting(&mut self) {
        while self.handlers.len() < self.window.handling() {
            let Some(first) = self.context.leased.start() else { break };
            let (work, context) = (Arc::clone(&self.message_loop.work), Arc::clone(&self.context));
            self.handlers.spawn(handle_all(work, first, context));
        }
    }

    /// Gives back at once, in one batch, the messages that were received but not started.
    fn give_back_waiting(&mut self) {
        self.stop_receiving();
        let context = Arc::clone(&self.context);
        let (ids, messages) = context.leased.begin_return();
        if messages.is_empty() {
            return;
        }
        self.returns.spawn(async move {
            settle::release(&messages, &context).await;
            context.leased.end_return(&ids);
        });
    }

    /// Begins to extend all leases if it is time. Continues while the loop ends, until its deadline.
    fn extend(&mut self, wanted: LoopOrders) {
        let now = Instant::now();
        if self.extending.is_some() || now < self.extend_at || wanted.is_overdue() {
            return;
        }
        self.extend_at = now + extension_period(self.options.visibility_timeout);
        let context = Arc::clone(&self.context);
        self.extending = Some(Box::pin(async move { extend_all(&context).await }));
    }

    fn extended(&mut self, all_extended: bool) {
        self.extending = None;
        if !all_extended {
            let soon = Instant::now() + retry_period(self.options.visibility_timeout);
            self.extend_at = self.extend_at.min(soon);
        }
    }

    /// Waits for the handlers, which cancel themselves, and gives back their messages and the waiting ones.
    async fn cut(mut self) {
        self.stop_receiving();
        self.context.withdraw_queued();
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        while let Ok(Some(_)) = timeout_at(deadline, self.handlers.join_next()).await {}
        let TakenMessages { started, not_started } = self.context.leased.take_all();
        if !(started.is_empty() && not_started.is_empty()) {
            self.message_loop.control.note_cut_short();
        }
        let given_back = async {
            settle::release(&not_started, &self.context).await;
            settle::nack(&started, &self.context).await;
        };
        // If the mailbox does not answer, the leases run out.
        let _ = timeout(RETURN_TIMEOUT, given_back).await;
    }
}

impl Drop for MessageLoopRun<'_> {
    /// Comes before the handlers are dropped, whose calls can then no longer be told apart.
    fn drop(&mut self) {
        self.context.withdraw_queued();
    }
}
