//! The way of a call to a worker, between a pool and its scheduler: what it wishes for, where it waits, who hands it over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handing::Handing;
use super::scheduler::Load;
use super::session::{Claim, Visit};
use super::{Affinity, EMPTY, LostSessions, PoolEvent, QueueKey, Shared};
use crate::adapter::Reason;
use crate::call::batch::Aboard;
use crate::call::ticket::{Place, Ticket};
use crate::call::{Call, CallError, Extras, Input};
use crate::telemetry::{Event, Level, emit_with};
use crate::worker::{Berth, Order, Worn};

/// Which worker a call may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Any,
    /// This one if it has a free place, else any.
    Rather(usize),
    /// This one, waiting for it if need be.
    Only(usize),
    /// This one, now or not at all.
    OnlyNow(usize),
}

/// Whether the queue's limit holds for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Holds,
    /// The caller bounds itself.
    Waived,
}

/// What became of a call that was offered.
#[derive(Debug)]
pub(crate) enum Placed {
    Now(Call),
    Queued,
    Saturated(Call, usize),
    Busy(Call),
    Closed(Call),
}

/// Where a call was found.
pub(crate) enum Whereabouts {
    Withdrawn(Box<Call>),
    With(Arc<Berth>),
    /// With a worker, in a batch.
    Aboard(Arc<Aboard>),
    Nowhere,
}

/// Finding a worker, or a place to wait.
impl Shared {
    /// Gives a call to a worker, or puts it into the queue, or to others of a batch command.
    #[inline]
    pub(crate) fn submit(self: &Arc<Self>, call: Call, limit: Limit) -> Result<(), CallError> {
        if self.emptied.load(Ordering::Relaxed) && self.serves_nobody(&call) {
            withhold(call);
            let (pool, reason) = (self.name.to_string(), EMPTY.to_owned());
            return Err(CallError::NoWorkers { pool, reason, degraded: None });
        }
        let plain = call.extras.as_ref().is_none_or(|extras| extras.is_only_trace());
        if plain && !call.alone && call.command.gathers() && matches!(call.input, Input::One(_)) {
            return self.gather(call, limit);
        }
        self.submit_alone(call, limit)
    }

    /// As [`Shared::submit`], for a call that is to travel with no others.
    #[inline]
    pub(crate) fn submit_alone(self: &Arc<Self>, mut call: Call, limit: Limit) -> Result<(), CallError> {
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
                Err(self.saturated(depth))
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

    /// The error of a call for which there is no room.
    pub(super) fn saturated(&self, depth: usize) -> CallError {
        CallError::Saturated { pool: self.name.to_string(), depth, degraded: self.degraded() }
    }

    /// A pool that was told to have no workers has none any more, and is not stopped either, which says more.
    #[cold]
    fn serves_nobody(&self, call: &Call) -> bool {
        let scheduler = self.scheduler();
        scheduler.admits(call) && scheduler.berths().next().is_none()
    }

    /// A call waits: a crew that has none, or too few, to serve it may want to know.
    pub(super) fn call_attention(&self) {
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
        if let (Visit::New, Some(session)) = (&visit, &extras.session) {
            emit_with(Level::Debug, || Event::SessionOpened {
                pool: Arc::clone(&self.name),
                session: Arc::clone(session),
                sessions: self.sessions.count(),
            });
        }
        Ok(match visit {
            Visit::New | Visit::Unserved => Wish::Any,
            Visit::Lost(worker) => self.wish_of_lost(extras, &worker)?,
            Visit::At(berth) if !self.scheduler().serves(&berth) => {
                self.wish_of_lost(extras, berth.id.as_str())?
            }
            Visit::At(berth) => match self.config().affinity {
                Affinity::Hint => Wish::Rather(berth.post),
                Affinity::StrictQueue => Wish::Only(berth.post),
                Affinity::StrictFailFast => Wish::OnlyNow(berth.post),
            },
        })
    }

    /// The worker of its session is gone.
    fn wish_of_lost(&self, extras: &Extras, worker: &str) -> Result<Wish, CallError> {
        let config = self.config();
        if config.affinity == Affinity::Hint || config.lost_sessions == LostSessions::Move {
            return Ok(Wish::Any);
        }
        let session = extras.session.as_deref().unwrap_or_default().to_owned();
        Err(CallError::SessionLost { session, worker: worker.to_owned() })
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

    /// Takes back a call that still waits. None: a worker has it, or had it.
    pub(crate) fn withdraw(&self, key: QueueKey) -> Option<Call> {
        let mut scheduler = self.scheduler();
        let call = scheduler.withdraw(key);
        self.note_if_done(&scheduler);
        call
    }

    /// Where a caller's call is, for whoever wants to reach it.
    pub(crate) fn withdraw_or_locate(&self, ticket: &Ticket) -> Whereabouts {
        loop {
            match ticket.place() {
                None => return Whereabouts::Nowhere,
                Some(Place::With(berth)) => return Whereabouts::With(berth),
                Some(Place::Aboard(aboard)) => return Whereabouts::Aboard(aboard),
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

/// Handing over.
impl Shared {
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
    pub(super) fn hand_over(&self, mut call: Call) {
        let Some(slot) = &call.slot else { return };
        let berth = Arc::clone(slot.berth());
        match self.claim_session(&call, &berth) {
            Ok(None) => {}
            Err(lost) => return call.fail(lost),
            // Two calls of a new session were under way at the same time, and the other one came first.
            Ok(Some(owner)) => {
                drop(call.slot.take());
                let placed = self.scheduler().offer(call, Wish::Only(owner.post), Limit::Waived);
                return match placed {
                    Placed::Now(call) => self.hand_over(call),
                    Placed::Closed(call) => call.fail(CallError::Stopped),
                    Placed::Queued | Placed::Saturated(..) | Placed::Busy(_) => {}
                };
            }
        }
        // Its caller went away while it was on its way here.
        if call.is_abandoned() {
            return;
        }
        match berth.count(&call.command.name, call.callers()) {
            Worn::No => {}
            Worn::Due => self.attention.notify_one(),
            Worn::Twice => {
                // Here, and not by the crew: it would get many more before the crew has looked.
                berth.pool.lay_off(&berth, true);
                self.attention.notify_one();
            }
        }
        if berth.serves_one {
            berth.pool.retire(berth.post);
            berth.order(Order::Retire(Reason::Replaced("each call gets a worker of its own".into())));
        }
        let _handing = Handing::begin();
        Arc::clone(&berth.handle).execute(call);
    }

    /// A worker is about to serve a call of a session, if there is one. The worker that the session belongs to, if that is another.
    fn claim_session(&self, call: &Call, berth: &Arc<Berth>) -> Result<Option<Arc<Berth>>, CallError> {
        let Some(session) = call.session() else { return Ok(None) };
        let config = self.config();
        if config.affinity == Affinity::Hint {
            self.sessions.served_by(session, berth);
            return Ok(None);
        }
        let lives = |owner: &Arc<Berth>| self.scheduler().serves(owner);
        match (self.sessions.claim(session, berth, config.lost_sessions, lives), config.lost_sessions) {
            (Claim::Own, _) => Ok(None),
            (Claim::Others(owner), _) => Ok(Some(owner)),
            (Claim::Inherited(from), LostSessions::Move) => {
                let (session, to) = (session.into(), berth.id.as_str().into());
                self.announce(PoolEvent::SessionMoved { session, from, to });
                Ok(None)
            }
            (Claim::Inherited(from), LostSessions::Fail) => {
                Err(CallError::SessionLost { session: session.to_owned(), worker: from.to_string() })
            }
        }
    }

    pub(super) fn release(&self, berth: &Arc<Berth>, load: Load, places: Option<usize>) {
        let next = {
            let mut scheduler = self.scheduler();
            scheduler.release(berth, load);
            if let Some(places) = places {
                scheduler.set_places(berth, places);
            }
            self.note_if_done(&scheduler);
            if Handing::feeds_later(&berth.pool, berth.post) { None } else { scheduler.next_for(berth.post) }
        };
        if let Some(call) = next {
            self.hand_over(call);
            self.feed(berth.post);
        }
    }
}

/// A refused call is answered by the caller itself; its end must not be taken for the pool's.
pub(super) fn withhold(call: Call) {
    call.fail(CallError::Cancelled);
}

impl Call {
    /// How long it will take, as far as one can tell.
    pub(crate) fn nanos(&self) -> u32 {
        // A stream takes as long as its reader does.
        let each = if self.stream_credit().is_some() { u32::MAX } else { self.command.estimate.nanos() };
        each.saturating_mul(self.command.runs(&self.input))
    }
}
