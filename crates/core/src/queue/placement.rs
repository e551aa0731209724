//! The path of a call to a worker, between a pool and its scheduler: placement, queueing and handover.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PoolInner;
use super::session::{SessionClaim, SessionVisit};
use crate::adapter::{Reason, ReplaceReason};
use crate::call::QueueKey;
use crate::call::answer::CallState;
use crate::call::batch::BatchMember;
use crate::call::lease::dispatch::Dispatch;
use crate::call::progress::CallPlace;
use crate::call::{Call, CallError, Extras, Input, NoWorkersReason};
use crate::options::{Affinity, LostSessions};
use crate::telemetry::{Event, Level, emit_with};
use crate::worker::{CallWear, Worker, WorkerOrder};

/// The workers that a call may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement {
    Any,
    /// This worker if it has a free place, otherwise any worker.
    Rather(usize),
    /// Only this worker. The call waits for it if necessary.
    Only(usize),
    /// Only this worker, and only if it has a free place now.
    OnlyNow(usize),
}

/// Whether the queue's limit applies to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueLimit {
    Holds,
    /// The caller limits itself, or the call was admitted before.
    Waived,
}

/// The result of offering a call to the scheduler.
#[derive(Debug)]
pub(crate) enum OfferResult {
    Now(Call),
    Queued,
    Saturated(Call, usize),
    Busy(Call),
    Closed(Call),
}

/// Where a call was found.
pub(crate) enum Location {
    Withdrawn(Box<Call>),
    With(Arc<Worker>),
    /// With a worker, as a member of a batch.
    InBatch(Arc<BatchMember>),
    Nowhere,
}

/// Finding a worker, or queueing the call.
impl PoolInner {
    /// Gives a call to a worker, queues it, or adds it to a batch.
    #[inline]
    pub(crate) fn submit(self: &Arc<Self>, call: Call, limit: QueueLimit) -> Result<(), CallError> {
        if self.emptied.load(Ordering::Relaxed) && self.serves_nobody(&call) {
            withhold(call);
            let (pool, reason) = (self.name.to_string(), NoWorkersReason::ScaledToZero);
            return Err(CallError::NoWorkers { pool, reason, degraded: None });
        }
        let plain = call.extras.as_ref().is_none_or(|extras| extras.is_only_trace());
        if plain && !call.alone && call.command.gathers() && matches!(call.input, Input::One(_)) {
            return self.gather(call, limit);
        }
        self.submit_alone(call, limit)
    }

    /// Submits a call like [`PoolInner::submit`], but never as part of a batch.
    #[inline]
    pub(crate) fn submit_alone(self: &Arc<Self>, mut call: Call, limit: QueueLimit) -> Result<(), CallError> {
        let placement = match call.extras.as_deref_mut() {
            Some(extras) if extras.session.is_some() => self.placement_of_session(extras)?,
            _ => Placement::Any,
        };
        self.submit_to(call, placement, limit)
    }

    pub(crate) fn submit_to(
        self: &Arc<Self>,
        call: Call,
        placement: Placement,
        limit: QueueLimit,
    ) -> Result<(), CallError> {
        let call = match placement {
            Placement::Any if !call.alone => match self.place_at_once(call) {
                Some(call) => call,
                None => return Ok(()),
            },
            Placement::Any | Placement::Rather(_) | Placement::Only(_) | Placement::OnlyNow(_) => call,
        };
        let placed = self.scheduler().offer(call, placement, limit);
        match placed {
            OfferResult::Now(call) => {
                self.hand_over(call);
                Ok(())
            }
            OfferResult::Queued => {
                self.call_attention();
                Ok(())
            }
            OfferResult::Saturated(call, depth) => {
                withhold(call);
                Err(self.saturated(depth))
            }
            OfferResult::Busy(call) => {
                let session = call.session().unwrap_or_default().to_owned();
                withhold(call);
                let worker =
                    self.sessions.worker(&session).map_or_else(String::new, |worker| worker.id.to_string());
                Err(CallError::SessionBusy { session, worker })
            }
            OfferResult::Closed(call) => {
                withhold(call);
                Err(CallError::Stopped)
            }
        }
    }

    /// Gives a call to a worker without the scheduler's lock. Returns the call if the scheduler must decide.
    #[inline]
    fn place_at_once(self: &Arc<Self>, call: Call) -> Option<Call> {
        let taken = self.open.take(call.nanos());
        let left = match taken.place {
            None => Some(call),
            Some(place) => {
                let mut call = place.worker.seat(call, place.beside);
                if self.open.is_closed() {
                    // The pool was closed in the meantime, and its closing may have missed this call.
                    drop(call.lease.take());
                    Some(call)
                } else {
                    self.hand_over(call);
                    None
                }
            }
        };
        if let Some(index) = taken.unlisted {
            self.feed(index);
        }
        left
    }

    /// Returns the error for a call that finds the queue full.
    pub(crate) fn saturated(&self, depth: usize) -> CallError {
        CallError::Saturated { pool: self.name.to_string(), depth, degraded: self.degraded() }
    }

    /// Reports whether the pool has no workers although it takes calls. A stopped pool has a more specific error.
    #[cold]
    fn serves_nobody(&self, call: &Call) -> bool {
        let scheduler = self.scheduler();
        scheduler.admits(call) && scheduler.workers().next().is_none()
    }

    /// Wakes the supervisor because a call waits, if the supervisor wants to know: it may have too few workers.
    pub(crate) fn call_attention(&self) {
        if self.wants_attention.load(Ordering::Relaxed) {
            self.attention.notify_one();
        }
    }

    fn placement_of_session(&self, extras: &mut Extras) -> Result<Placement, CallError> {
        let visited = self.sessions.visit(extras.session.as_deref().unwrap_or_default());
        let (visit, in_use) = visited.ok_or_else(|| CallError::TooManySessions {
            pool: self.name.to_string(),
            limit: self.sessions.limit(),
        })?;
        extras.session_in_use = Some(in_use);
        if let (SessionVisit::New, Some(session)) = (&visit, &extras.session) {
            emit_with(Level::Debug, || Event::SessionOpened {
                pool: Arc::clone(&self.name),
                session: Arc::clone(session),
                sessions: self.sessions.count(),
            });
        }
        Ok(match visit {
            SessionVisit::New | SessionVisit::Unserved => Placement::Any,
            SessionVisit::Lost(worker) => self.placement_of_lost(extras, &worker)?,
            SessionVisit::At(worker) if !self.scheduler().serves(&worker) => {
                self.placement_of_lost(extras, worker.id.as_str())?
            }
            SessionVisit::At(worker) => match self.config().affinity {
                Affinity::Hint => Placement::Rather(worker.index),
                Affinity::StrictQueue => Placement::Only(worker.index),
                Affinity::StrictFailFast => Placement::OnlyNow(worker.index),
            },
        })
    }

    /// Decides where a call goes if the worker of its session is gone.
    fn placement_of_lost(&self, extras: &Extras, worker: &str) -> Result<Placement, CallError> {
        let config = self.config();
        if config.affinity == Affinity::Hint || config.lost_sessions == LostSessions::Move {
            return Ok(Placement::Any);
        }
        let session = extras.session.as_deref().unwrap_or_default().to_owned();
        Err(CallError::SessionLost { session, worker: worker.to_owned() })
    }

    /// Finds another worker for a call that its worker never started, or queues the call again.
    pub(crate) fn requeue(self: &Arc<Self>, call: Call) {
        let placed = self.scheduler().requeue(call);
        match placed {
            OfferResult::Now(call) => self.hand_over(call),
            OfferResult::Closed(call) => call.fail(CallError::Stopped),
            OfferResult::Queued => self.call_attention(),
            OfferResult::Saturated(..) | OfferResult::Busy(_) => {}
        }
    }

    /// Removes a call that still waits. Returns `None` if a worker has the call or had it.
    pub(crate) fn withdraw(&self, key: QueueKey) -> Option<Call> {
        let mut scheduler = self.scheduler();
        let call = scheduler.withdraw(key);
        self.note_if_done(&scheduler);
        call
    }

    /// Withdraws a call that still waits, or reports where the call is.
    pub(crate) fn withdraw_or_locate(&self, call_state: &CallState) -> Location {
        loop {
            match call_state.place() {
                None => return Location::Nowhere,
                Some(CallPlace::With(holder)) => return Location::With(Arc::clone(Worker::of(&*holder))),
                Some(CallPlace::InBatch(batched)) => return Location::InBatch(batched),
                Some(CallPlace::Queued(key)) => match self.withdraw(key) {
                    Some(call) => return Location::Withdrawn(Box::new(call)),
                    None if call_state.has_ended() => return Location::Nowhere,
                    // The call was on its way to a worker between the two checks. Its place is set under the lock that
                    // `withdraw` has taken, so the next iteration sees it.
                    None => {}
                },
            }
        }
    }
}

/// Handing calls to workers.
impl PoolInner {
    /// Gives waiting calls to a worker that may have free places.
    pub(crate) fn feed(self: &Arc<Self>, index: usize) {
        loop {
            let calls = {
                let mut scheduler = self.scheduler();
                scheduler.note_freed(index);
                self.note_if_done(&scheduler);
                scheduler.next_calls(index)
            };
            if calls.is_empty() {
                return;
            }
            for call in calls {
                self.hand_over(call);
            }
        }
    }

    /// Gives a call to the worker that was chosen for it.
    pub(crate) fn hand_over(self: &Arc<Self>, mut call: Call) {
        let Some(lease) = &call.lease else { return };
        let worker = Worker::of(&**lease.holder());
        match self.claim_session(&call, worker) {
            Ok(None) => {}
            Err(lost) => return call.fail(lost),
            // Two calls of a new session were under way at the same time, and the other one claimed the session first.
            Ok(Some(owner)) => {
                drop(call.lease.take());
                let placed = self.scheduler().offer(call, Placement::Only(owner.index), QueueLimit::Waived);
                return match placed {
                    OfferResult::Now(call) => self.hand_over(call),
                    OfferResult::Closed(call) => call.fail(CallError::Stopped),
                    OfferResult::Queued | OfferResult::Saturated(..) | OfferResult::Busy(_) => {}
                };
            }
        }
        // The caller went away while the call was on its way to the worker.
        if call.is_abandoned() {
            return;
        }
        match worker.count(&call.command.name, call.callers()) {
            CallWear::No => {}
            CallWear::Due => self.attention.notify_one(),
            CallWear::Twice => {
                // Here and not in the supervisor: the worker would get many more calls before the supervisor looks.
                self.drain_worn(worker, true);
                self.attention.notify_one();
            }
        }
        if worker.serves_one {
            self.retire(worker.index);
            worker.order(WorkerOrder::Retire(Reason::Replaced(ReplaceReason::OneCallEach)));
        }
        let handle = Arc::clone(&worker.handle);
        let _dispatch = Dispatch::begin();
        handle.execute(call);
    }

    /// Claims the session of a call, if it has one, for the worker that is about to serve it. Returns the worker that
    /// the session belongs to, if that is another worker.
    fn claim_session(&self, call: &Call, worker: &Arc<Worker>) -> Result<Option<Arc<Worker>>, CallError> {
        let Some(session) = call.session() else { return Ok(None) };
        let config = self.config();
        if config.affinity == Affinity::Hint {
            self.sessions.served_by(session, worker);
            return Ok(None);
        }
        let lives = |owner: &Arc<Worker>| self.scheduler().serves(owner);
        match (self.sessions.claim(session, worker, config.lost_sessions, lives), config.lost_sessions) {
            (SessionClaim::Own, _) => Ok(None),
            (SessionClaim::Others(owner), _) => Ok(Some(owner)),
            (SessionClaim::Inherited(from), LostSessions::Move) => {
                let (session, to) = (session.into(), worker.id.as_str().into());
                self.announce(|pool| Event::SessionMoved { pool, session, from, to });
                Ok(None)
            }
            (SessionClaim::Inherited(from), LostSessions::Fail) => {
                Err(CallError::SessionLost { session: session.to_owned(), worker: from.to_string() })
            }
        }
    }
}

/// Ends a refused call. Its caller gets the error from the submission, so this end must not look like the pool's.
pub(crate) fn withhold(call: Call) {
    call.fail(CallError::Cancelled);
}
