//! A call under way, as its caller holds it: waits for the end, keeps the time, and gives the call up when it is dropped.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::ticket::{End, Progress, Ticket};
use super::{Call, CallError, CallId, Extras, Input, Portion};
use crate::pool::{self, AUTOPSY_PATIENCE, Command, Limit, QueueKey, Whereabouts, Wish};
use crate::value::{Encoded, ValueError};
use crate::worker::{Berth, abandon};

/// What a call is to be.
pub(crate) struct Plan {
    pub(crate) command: Arc<Command>,
    pub(crate) input: Input,
    pub(crate) timeout: Duration,
    pub(crate) queue_timeout: Duration,
    pub(crate) priority: i8,
    pub(crate) extras: Option<Box<Extras>>,
}

impl Plan {
    /// An upper bound of the bytes that it takes to send it. A worker refuses a longer frame than was agreed, and is lost.
    fn length(&self) -> usize {
        /// The header of a text, a number, or the name of an option.
        const SMALL: usize = 16;
        let arguments = match &self.input {
            Input::One(input) => input.payload_len(),
            Input::Many(inputs) => inputs.iter().map(Encoded::payload_len).sum(),
        };
        let extras = self.extras.as_ref().map_or(0, |extras| {
            let metadata = extras.metadata.iter().map(|(key, value)| key.len() + value.len() + SMALL);
            metadata.sum::<usize>() + extras.session.as_ref().map_or(0, |session| session.len()) + 6 * SMALL
        });
        arguments + self.command.name.len() + extras + 4 * SMALL
    }
}

/// What came of one wait.
pub(crate) enum Event {
    Item(Encoded),
    End(End),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The timer is set for the end of the caller's patience with the queue.
    MayBeQueued,
    /// The timer is set for the deadline.
    Running,
    /// The end was seen.
    Over,
}

/// See the module.
pub(crate) struct Waiting {
    pub(crate) id: CallId,
    pool: Arc<pool::Shared>,
    pub(crate) command: Arc<Command>,
    ticket: Arc<Ticket>,
    began: Instant,
    queue_timeout: Duration,
    timeout: Duration,
    phase: Phase,
}

impl Waiting {
    /// Gives a call to its pool.
    pub(crate) fn begin(pool: Arc<pool::Shared>, plan: Plan) -> Result<Self, CallError> {
        Self::start(pool, plan, |pool, call| pool.submit(call, Limit::Holds))
    }

    /// As [`Waiting::begin`], for a caller that bounds itself.
    pub(crate) fn begin_bulk(pool: Arc<pool::Shared>, plan: Plan) -> Result<Self, CallError> {
        Self::start(pool, plan, |pool, call| pool.submit(call, Limit::Waived))
    }

    /// As [`Waiting::begin`], with a wish for the worker.
    pub(crate) fn begin_at(pool: Arc<pool::Shared>, plan: Plan, wish: Wish) -> Result<Self, CallError> {
        Self::start(pool, plan, |pool, call| pool.submit_to(call, wish, Limit::Waived))
    }

    fn start(
        pool: Arc<pool::Shared>,
        plan: Plan,
        submit: impl FnOnce(&Arc<pool::Shared>, Call) -> Result<(), CallError>,
    ) -> Result<Self, CallError> {
        let length = plan.length();
        if length > pool.config().max_frame {
            let message =
                format!("they are {length} bytes long, and max_frame is {}", pool.config().max_frame);
            let source = ValueError::unsendable(message);
            return Err(CallError::Arguments { command: plan.command.name.to_string(), source });
        }
        let id = pool::next_call_id();
        let ticket = Arc::new(Ticket::default());
        let began = Instant::now();
        let nested = plan.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        let key = if nested { QueueKey::nested(id.0) } else { QueueKey::new(plan.priority, id.0) };
        let call = Call {
            id,
            command: Arc::clone(&plan.command),
            input: plan.input,
            deadline: Some(after(began, plan.timeout)),
            extras: plan.extras,
            ticket: Arc::clone(&ticket),
            key,
            slot: None,
            queued_at: None,
            returns: 0,
            batch: None,
        };
        submit(&pool, call)?;
        Ok(Self {
            id,
            pool,
            command: plan.command,
            ticket,
            began,
            queue_timeout: plan.queue_timeout.min(plan.timeout),
            timeout: plan.timeout,
            phase: Phase::MayBeQueued,
        })
    }

    /// Lets the worker send so much more.
    pub(crate) fn grant(&self, more: Portion) {
        if let Some(berth) = self.ticket.berth() {
            berth.handle.grant(self.id, more);
        }
    }

    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.ticket.take_progress()
    }

    /// As [`Waiting::value`], and hands on the progress that is told meanwhile.
    pub(crate) async fn value_with_progress(
        &mut self,
        mut watcher: impl FnMut(Progress),
    ) -> Result<Encoded, CallError> {
        let mut timer = pin!(self.timer());
        let end = poll_fn(|context| {
            let end = self.poll(timer.as_mut(), context, super::ticket::Ticket::poll_end);
            if let Some(progress) = self.ticket.take_progress() {
                watcher(progress);
            }
            end
        });
        match end.await {
            Ok(end) => self.conclude(end).await,
            Err(late) => Err(late.explain().await),
        }
    }

    /// The value of a call that is not a stream.
    pub(crate) async fn value(&mut self) -> Result<Encoded, CallError> {
        let mut timer = pin!(self.timer());
        let end =
            poll_fn(|context| self.poll(timer.as_mut(), context, super::ticket::Ticket::poll_end)).await;
        match end {
            Ok(end) => self.conclude(end).await,
            Err(late) => Err(late.explain().await),
        }
    }

    /// The values of many calls that travel together. The answers come in one part or in several; what has
    /// come is kept, however it ends. If their worker died: the error, and how many of them it had started.
    pub(crate) async fn values(&mut self) -> (Vec<Encoded>, Result<(), (CallError, Option<usize>)>) {
        let mut timer = pin!(self.timer());
        let mut parts = Vec::new();
        let end = loop {
            match poll_fn(|context| self.poll_event(timer.as_mut(), context)).await {
                Ok(Event::Item(part)) => parts.push(part),
                Ok(Event::End(end)) => break end,
                Err(late) => return (parts, Err((late.explain().await, None))),
            }
        };
        let started = match end {
            End::Lost { started, .. } => started,
            End::Value(_) | End::Failed(_) => None,
        };
        let last = self.conclude(end).await.map(|last| parts.push(last));
        (parts, last.map_err(|error| (error, started)))
    }

    /// The next item of a stream, or its end.
    pub(crate) fn poll_event(
        &mut self,
        timer: Pin<&mut Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Event, Late>> {
        self.poll(timer, context, |ticket, context| {
            ticket.poll_next(context).map(|next| match next {
                Ok(item) => Event::Item(item),
                Err(end) => Event::End(end),
            })
        })
    }

    /// A timer for [`Waiting::poll_event`]: first for the queue, later for the deadline.
    pub(crate) fn timer(&self) -> Sleep {
        tokio::time::sleep_until(after(self.began, self.queue_timeout))
    }

    fn poll<T>(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        context: &mut Context<'_>,
        look: impl Fn(&Ticket, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Late>> {
        if let Poll::Ready(seen) = look(&self.ticket, context) {
            return Poll::Ready(Ok(seen));
        }
        loop {
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            match self.phase {
                Phase::MayBeQueued => match self.pool.withdraw_or_locate(&self.ticket) {
                    Whereabouts::Withdrawn(call) => {
                        self.phase = Phase::Over;
                        drop(call);
                        return Poll::Ready(Err(Late::Queued(self.queue_error())));
                    }
                    Whereabouts::With(_) | Whereabouts::Aboard(_) | Whereabouts::Nowhere => {
                        self.phase = Phase::Running;
                        timer.as_mut().reset(after(self.began, self.timeout));
                    }
                },
                Phase::Running | Phase::Over => {
                    // The answer may have come with the deadline: then it counts.
                    if let Poll::Ready(seen) = look(&self.ticket, context) {
                        return Poll::Ready(Ok(seen));
                    }
                    return Poll::Ready(Err(Late::Running(self.time_is_up())));
                }
            }
        }
    }

    fn queue_error(&self) -> CallError {
        let pool = self.pool.name.to_string();
        match &*self.pool.health.borrow() {
            pool::Health::Short { serving: 0, reason } => {
                return CallError::NoWorkers { pool, reason: reason.to_string() };
            }
            pool::Health::Degraded { serving: 0, reason } => {
                let reason = format!("it is degraded, for they fail again and again: {reason}");
                return CallError::NoWorkers { pool, reason };
            }
            _ => {}
        }
        let depth = self.pool.scheduler().depth();
        CallError::QueueTimeout {
            pool,
            command: self.command.name.to_string(),
            after: self.queue_timeout,
            depth,
        }
    }

    fn time_is_up(&mut self) -> TimeIsUp {
        self.phase = Phase::Over;
        TimeIsUp {
            pool: Arc::clone(&self.pool),
            call: self.id,
            ticket: Arc::clone(&self.ticket),
            command: self.command.name.to_string(),
            after: self.timeout,
        }
    }

    /// What an end means to the caller.
    pub(crate) async fn conclude(&mut self, end: End) -> Result<Encoded, CallError> {
        self.phase = Phase::Over;
        match end {
            End::Value(value) => Ok(value),
            End::Failed(error) => Err(error),
            End::Lost { berth, .. } => Err(lost(self.id, &self.command.name, &berth).await),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.phase != Phase::Over && !self.ticket.has_ended() {
            abandon(&self.pool, self.id, &self.ticket);
        }
    }
}

/// A call that came to no end in time.
pub(crate) enum Late {
    Queued(CallError),
    Running(TimeIsUp),
}

impl Late {
    pub(crate) async fn explain(self) -> CallError {
        match self {
            Self::Queued(error) => error,
            Self::Running(call) => call.explain().await,
        }
    }
}

/// A call whose time is up at its worker: asks where it is stuck, then cancels it.
pub(crate) struct TimeIsUp {
    pool: Arc<pool::Shared>,
    call: CallId,
    ticket: Arc<Ticket>,
    command: String,
    after: Duration,
}

impl TimeIsUp {
    async fn explain(self) -> CallError {
        let berth = self.ticket.berth();
        let stack = match &berth {
            Some(berth) if !self.ticket.has_ended() => berth.handle.stacks().await,
            _ => None,
        };
        let output = berth.map_or_else(Vec::new, |berth| berth.output.last_lines());
        CallError::Timeout { command: self.command.clone(), after: self.after, stack, output }
        // Dropped here, it is given up.
    }
}

impl Drop for TimeIsUp {
    fn drop(&mut self) {
        abandon(&self.pool, self.call, &self.ticket);
    }
}

/// A time as long as `Duration::MAX` is no overflow, only late.
pub(crate) fn after(began: Instant, time: Duration) -> Instant {
    const LATE: Duration = Duration::from_hours(24 * 365 * 10);
    began + time.min(LATE)
}

/// The error of a call whose worker is gone.
async fn lost(call: CallId, command: &str, berth: &Berth) -> CallError {
    let autopsy = tokio::time::timeout(AUTOPSY_PATIENCE, berth.autopsy()).await.ok().flatten();
    let autopsy = match autopsy {
        Some(autopsy) => Box::new((*autopsy).clone()),
        None => Box::new(berth.first_look()),
    };
    CallError::WorkerDied { call, command: command.to_owned(), autopsy }
}
