//! A call under way, as its caller holds it. It waits for the end, watches the deadline, and gives the call up when it
//! is dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;

use super::attempts::Attempts;
use super::cancel::abandon;
use super::retry::RetryState;
use super::telemetry::{refused, tell_refusal};
pub(crate) use super::timeout::LateCall;
use super::timeout::TimedOutCall;
use crate::call::PoolCommand;
use crate::call::QueueKey;
use crate::call::answer::CallState;
use crate::call::progress::{CallEnd, Progress};
use crate::call::{Call, CallError, CallId, Extras, Input, NoWorkersReason, Portion, has_run};
use crate::queue::{
    AdmissionPermit, CallOutcome, CallTimer, Location, Placement, PoolHealth, PoolInner, QueueLimit,
};
use crate::sharded::ShardRef;
use crate::telemetry::TraceContext;
use crate::value::{Encoded, EncodedItems, ValueError};
use crate::worker::{AUTOPSY_PATIENCE, Worker};
use snakepit_policy::time::after;

/// The description of a call that is about to be submitted.
pub(crate) struct CallPlan {
    pub(crate) command: ShardRef<PoolCommand>,
    pub(crate) input: Input,
    pub(crate) timeout: Duration,
    pub(crate) queue_timeout: Duration,
    pub(crate) priority: i8,
    pub(crate) extras: Option<Box<Extras>>,
    /// When the time of the call began, if not now.
    pub(crate) began: Option<Instant>,
    /// Whether the worker may have no other call meanwhile.
    pub(crate) alone: bool,
    /// Whether the call is repeated if its worker is lost.
    pub(crate) idempotent: bool,
}

impl CallPlan {
    /// Returns the plan of a call without options, which may wait in the queue as long as it may take.
    pub(crate) fn new(command: ShardRef<PoolCommand>, input: Input, timeout: Duration) -> Self {
        Self {
            command,
            input,
            timeout,
            queue_timeout: timeout,
            priority: 0,
            extras: None,
            began: None,
            alone: false,
            idempotent: false,
        }
    }

    /// Returns an upper bound of the bytes that the call takes on the wire. A worker rejects a frame that is longer
    /// than agreed, and is lost.
    fn length(&self) -> usize {
        /// The size of a text's header, of a number, or of an option's name.
        const SMALL: usize = 16;
        let arguments = match &self.input {
            Input::One(input) => input.payload_len(),
            Input::Many(inputs) => inputs.iter().map(Encoded::payload_len).sum(),
        };
        let extras = self.extras.as_ref().map_or(0, |extras| {
            let metadata = extras.metadata.iter().map(|(key, value)| key.len() + value.len() + SMALL);
            let trace = extras.trace.as_ref().map_or(0, |trace| trace.wire_len());
            let session = extras.session.as_ref().map_or(0, |session| session.len());
            metadata.sum::<usize>() + session + trace + 8 * SMALL
        });
        arguments + self.command.name.len() + extras + 4 * SMALL
    }
}

/// The result of one wait.
pub(crate) enum CallEvent {
    Items(EncodedItems),
    End(CallEnd),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingPhase {
    /// The timer is set to the queue timeout.
    MayBeQueued,
    /// The timer is set to the deadline.
    Running,
    /// The end was seen.
    Over,
}

/// A call under way, as its caller holds it.
pub struct PendingCall {
    pub(crate) id: CallId,
    pub(super) pool: ShardRef<PoolInner>,
    pub(crate) command: ShardRef<PoolCommand>,
    pub(super) state: Arc<CallState>,
    pub(super) began: Instant,
    /// When the call was last given to the pool.
    pub(super) queued_at: Instant,
    queue_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) phase: PendingPhase,
    pub(super) streams: bool,
    /// The number of parts of a stream that were delivered.
    pub(super) delivered: u64,
    pub(super) trace: Option<Arc<TraceContext>>,
    /// The span of the call, until the call is settled.
    pub(super) span: Span,
    /// The permit of the call, until the call is settled. `None` if the call is counted elsewhere, or not at all.
    pub(super) permit: Option<AdmissionPermit>,
    /// Set only if the call is idempotent.
    pub(super) again: Option<Box<RetryState>>,
}

impl PendingCall {
    /// Submits a caller's call to its pool, which counts it.
    pub(crate) fn begin(
        pool: ShardRef<PoolInner>,
        mut plan: CallPlan,
        span: Span,
    ) -> Result<Self, CallError> {
        let admitted = match &plan.input {
            Input::One(input) => pool.admit(&plan.command, input),
            Input::Many(_) => Ok(AdmissionPermit::default()),
        };
        let permit = admitted.inspect_err(|error| {
            pool.count_refused(error);
            tell_refusal(&pool, &plan.command, error);
        })?;
        plan.alone |= permit.is_trial();
        if plan.idempotent {
            pool.deposit_for_retries();
        }
        let mut begun =
            Self::start(pool, plan, Some(permit), |pool, call| pool.submit(call, QueueLimit::Holds))?;
        begun.span = span;
        begun.tell_beginning();
        Ok(begun)
    }

    /// Like [`PendingCall::begin`], for a caller that limits its own calls and settles with the pool itself.
    pub(crate) fn begin_bulk(pool: ShardRef<PoolInner>, plan: CallPlan) -> Result<Self, CallError> {
        Self::start(pool, plan, None, |pool, call| pool.submit(call, QueueLimit::Waived))
    }

    /// Submits a call of the engine itself, with a placement for the worker.
    pub(crate) fn begin_at(
        pool: ShardRef<PoolInner>,
        plan: CallPlan,
        placement: Placement,
    ) -> Result<Self, CallError> {
        Self::start(pool, plan, None, |pool, call| pool.submit_to(call, placement, QueueLimit::Waived))
    }

    fn start(
        pool: ShardRef<PoolInner>,
        plan: CallPlan,
        permit: Option<AdmissionPermit>,
        submit: impl FnOnce(&Arc<PoolInner>, Call) -> Result<(), CallError>,
    ) -> Result<Self, CallError> {
        let length = plan.length();
        let most = pool.call_limits.max_frame();
        if length > most {
            let message = format!("they are {length} bytes long, and max_frame is {most}");
            let source = ValueError::unsendable(message);
            let error = CallError::Arguments { command: plan.command.name.to_string(), source };
            return Err(refused(&pool, &plan.command, permit, error));
        }
        let id = CallId::next();
        let call_state = Arc::new(CallState::default());
        let now = Instant::now();
        let began = plan.began.unwrap_or(now);
        let extras = plan.extras.as_ref();
        let nested = extras.is_some_and(|extras| extras.chain.is_some());
        let streams = extras.is_some_and(|extras| extras.stream.is_some());
        let trace = extras.and_then(|extras| extras.trace.clone());
        let key = if nested { QueueKey::nested(id.0) } else { QueueKey::new(plan.priority, now, id.0) };
        let mut call = Call::new(id, plan.command.clone(), plan.input, Arc::clone(&call_state), key);
        call.deadline = Some(after(began, plan.timeout));
        call.extras = plan.extras;
        call.alone = plan.alone;
        let attempts = || Attempts::first(Some(began), plan.timeout);
        let again = plan.idempotent.then(|| RetryState::of(&call, attempts())).flatten();
        if let Err(error) = submit(&pool, call) {
            return Err(refused(&pool, &plan.command, permit, error));
        }
        Ok(Self {
            id,
            pool,
            command: plan.command,
            state: call_state,
            began,
            queued_at: now,
            queue_timeout: plan.queue_timeout.min(plan.timeout),
            timeout: plan.timeout,
            phase: PendingPhase::MayBeQueued,
            streams,
            delivered: 0,
            trace,
            span: Span::none(),
            permit,
            again,
        })
    }

    /// Lets the worker send this much more, because it was read.
    pub(crate) fn grant(&self, more: Portion) {
        // This comes first, so that the worker's next items are not counted on top of items that were already read.
        self.state.has_read(more);
        if let Some(worker) = self.state.worker() {
            worker.handle.grant(self.id, more);
        }
    }

    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.state.take_progress()
    }

    /// Like `PendingCall::value`, but also passes on the progress that is reported meanwhile.
    pub async fn value_with_progress(
        &mut self,
        mut watcher: impl FnMut(Progress),
    ) -> Result<Encoded, CallError> {
        let mut timer = self.timer();
        loop {
            let end = poll_fn(|context| {
                let end = self.poll(&mut timer, context, CallState::poll_end);
                if let Some(progress) = self.state.take_progress() {
                    watcher(progress);
                }
                end
            });
            match end.await {
                Ok(CallEnd::Value(value)) => return Ok(self.answered(value)),
                // Boxed, because it is rare and would enlarge the future of every call.
                Ok(end) => {
                    if let Some(value) = Box::pin(self.conclude_or_again(end)).await? {
                        return Ok(value);
                    }
                }
                Err(late) => return Err(Box::pin(late.explain()).await),
            }
            timer.reset(self.first_look());
        }
    }

    /// Waits for the value of a call that is not a stream.
    pub(crate) async fn value(&mut self) -> Result<Encoded, CallError> {
        let mut timer = self.timer();
        loop {
            match poll_fn(|context| self.poll(&mut timer, context, CallState::poll_end)).await {
                Ok(CallEnd::Value(value)) => return Ok(self.answered(value)),
                // Boxed, because it is rare and would enlarge the future of every call.
                Ok(end) => {
                    if let Some(value) = Box::pin(self.conclude_or_again(end)).await? {
                        return Ok(value);
                    }
                }
                Err(late) => return Err(Box::pin(late.explain()).await),
            }
            timer.reset(self.first_look());
        }
    }

    /// Waits for the answers to calls that travel together. They come in one part or in several. The parts received are
    /// returned, however the wait ends. If the worker died, the error comes with the number of calls that it had
    /// started.
    pub(crate) async fn values(&mut self) -> (Vec<Encoded>, Result<(), (CallError, Option<usize>)>) {
        let mut timer = self.timer();
        let mut parts = Vec::new();
        let end = loop {
            match poll_fn(|context| self.poll_event(&mut timer, context)).await {
                Ok(CallEvent::Items(part)) => parts.push(part.into_payload()),
                Ok(CallEvent::End(end)) => break end,
                Err(late) => return (parts, Err((late.explain().await, None))),
            }
        };
        let started = match end {
            CallEnd::Lost { started, .. } => started,
            CallEnd::Value(_) | CallEnd::Failed(_) => None,
        };
        let last = self.conclude(end).await.map(|last| parts.push(last));
        (parts, last.map_err(|error| (error, started)))
    }

    /// Polls for the next items of a stream, or for its end.
    pub(crate) fn poll_event(
        &mut self,
        timer: &mut CallTimer,
        context: &mut Context<'_>,
    ) -> Poll<Result<CallEvent, LateCall>> {
        self.poll(timer, context, |call_state, context| {
            call_state.poll_next(context).map(|next| match next {
                Ok(items) => CallEvent::Items(items),
                Err(end) => CallEvent::End(end),
            })
        })
    }

    /// Returns a timer for [`PendingCall::poll_event`]: first for the queue timeout, later for the deadline.
    pub(crate) fn timer(&self) -> CallTimer {
        CallTimer::new(self.first_look())
    }

    /// Returns the end of the queue timeout, or the deadline if it is earlier.
    pub(crate) fn first_look(&self) -> Instant {
        after(self.queued_at, self.queue_timeout).min(after(self.began, self.timeout))
    }

    fn poll<T>(
        &mut self,
        timer: &mut CallTimer,
        context: &mut Context<'_>,
        look: impl Fn(&CallState, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, LateCall>> {
        if let Poll::Ready(seen) = look(&self.state, context) {
            return Poll::Ready(Ok(seen));
        }
        loop {
            if timer.poll(&self.pool, &self.state, self.queued_at, context).is_pending() {
                return Poll::Pending;
            }
            match self.phase {
                PendingPhase::MayBeQueued => match self.pool.withdraw_or_locate(&self.state) {
                    Location::Withdrawn(call) => {
                        self.phase = PendingPhase::Over;
                        drop(call);
                        let error = self.queue_error();
                        self.tell_queue_timeout();
                        self.settle(CallOutcome::of(&error));
                        return Poll::Ready(Err(LateCall::Queued(error)));
                    }
                    Location::With(_) | Location::InBatch(_) | Location::Nowhere => {
                        self.phase = PendingPhase::Running;
                        timer.reset(after(self.began, self.timeout));
                    }
                },
                PendingPhase::Running | PendingPhase::Over => {
                    // An answer that came together with the deadline counts.
                    if let Poll::Ready(seen) = look(&self.state, context) {
                        return Poll::Ready(Ok(seen));
                    }
                    return Poll::Ready(Err(LateCall::Running(self.time_is_up())));
                }
            }
        }
    }

    fn queue_error(&self) -> CallError {
        let pool = self.pool.name.to_string();
        let degraded = self.pool.degraded();
        let reason = match &*self.pool.health.borrow() {
            PoolHealth::Short { serving: 0, reason } | PoolHealth::Degraded { serving: 0, reason } => {
                Some(NoWorkersReason::Failed(Arc::clone(reason)))
            }
            PoolHealth::Empty => Some(NoWorkersReason::ScaledToZero),
            _ => None,
        };
        let error = match reason {
            Some(reason) => CallError::NoWorkers { pool, reason, degraded },
            None => CallError::QueueTimeout {
                pool,
                command: self.command.name.to_string(),
                after: self.queue_timeout,
                depth: self.pool.scheduler().depth(),
                degraded,
            },
        };
        match &self.again {
            Some(again) => again.attempts.explain(error),
            None => error,
        }
    }

    pub(super) fn settle(&mut self, outcome: CallOutcome) {
        if let Some(permit) = self.permit.take() {
            self.pool.settle(&self.command, permit, outcome);
            self.tell_end(outcome);
        }
    }

    fn time_is_up(&mut self) -> TimedOutCall {
        self.phase = PendingPhase::Over;
        self.settle(CallOutcome::TimedOut);
        TimedOutCall {
            pool: self.pool.clone(),
            call: self.id,
            state: Arc::clone(&self.state),
            command: self.command.name.to_string(),
            after: self.timeout,
        }
    }

    fn answered(&mut self, value: Encoded) -> Encoded {
        self.phase = PendingPhase::Over;
        self.settle(CallOutcome::Ok);
        value
    }

    /// Converts the end of the call into what its caller gets.
    pub(crate) async fn conclude(&mut self, end: CallEnd) -> Result<Encoded, CallError> {
        self.phase = PendingPhase::Over;
        match end {
            CallEnd::Value(value) => Ok(self.answered(value)),
            CallEnd::Failed(error) => {
                let error = match &self.again {
                    Some(again) => again.attempts.explain(error),
                    None => error,
                };
                self.settle(CallOutcome::of(&error));
                if error.remote().is_some_and(has_run) {
                    self.tell_output();
                }
                Err(error)
            }
            CallEnd::Lost { holder, .. } => {
                self.settle(CallOutcome::Died);
                Err(self.lost(Worker::of(&*holder)).await)
            }
        }
    }

    /// Logs what the worker printed during a failed call, because the output may say why.
    pub(super) fn tell_output(&self) {
        if let Some(worker) = self.state.worker() {
            worker.output.tell(self.state.printed(), self.id, &self.command.name, "failed");
        }
    }

    /// Returns the error of a call whose worker is gone.
    pub(super) async fn lost(&self, worker: &Worker) -> CallError {
        let error = lost(&self.pool, self.id, &self.command.name, worker, &self.state).await;
        worker.output.tell(self.state.printed(), self.id, &self.command.name, "lost");
        error
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.phase != PendingPhase::Over && !self.state.has_ended() {
            abandon(&self.pool, self.id, &self.state);
        }
        self.settle(CallOutcome::Cancelled);
    }
}

async fn lost(
    pool: &PoolInner,
    call: CallId,
    command: &str,
    worker: &Worker,
    call_state: &CallState,
) -> CallError {
    let autopsy = tokio::time::timeout(AUTOPSY_PATIENCE, worker.autopsy()).await.ok().flatten();
    let mut autopsy = match autopsy {
        Some(autopsy) => Box::new((*autopsy).clone()),
        None => Box::new(worker.first_look()),
    };
    worker.show_lines_of(call_state, &mut autopsy);
    CallError::WorkerDied {
        call,
        command: command.to_owned(),
        autopsy,
        attempts: 1,
        no_retry: None,
        degraded: pool.degraded(),
    }
}
