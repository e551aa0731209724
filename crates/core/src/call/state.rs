//! What a caller and its call share: where the call is, what has come of it, and whom to wake.
//!
//! One allocation per call, one short lock per event. The first end counts; whatever comes later is ignored.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::batch::BatchMember;
use super::lease::Holder;
use super::{CallError, CallId, Portion, QueueKey};
use crate::telemetry::{Level, is_heard};
use crate::value::Encoded;

/// How far a call is, as its worker tells.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Between 0 and 1, if it can be said.
    pub fraction: Option<f64>,
    /// For a person.
    pub text: Option<String>,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(crate) enum CallPlace {
    Queued(QueueKey),
    With(Arc<dyn Holder>),
    /// At a worker, together with others.
    InBatch(Arc<BatchMember>),
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// Its value; of a stream, the mark that it is complete.
    Value(Encoded),
    Failed(CallError),
    /// Its worker is gone; the autopsy says why. Of many calls that travelled together: how many were started.
    Lost {
        holder: Arc<dyn Holder>,
        started: Option<usize>,
    },
}

#[derive(Debug, Default)]
enum EndState {
    #[default]
    Open,
    Ended(CallEnd),
    Taken,
}

#[derive(Debug, Default)]
struct Inner {
    place: Option<CallPlace>,
    /// Since when a worker has it, if anybody wants to know.
    placed_at: Option<Instant>,
    /// How many lines its worker had printed when it got the call.
    printed: u64,
    items: VecDeque<Encoded>,
    /// How much the items are.
    unread: Portion,
    progress: Option<Progress>,
    outcome: EndState,
    abandoned: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct CallState(Mutex<Inner>);

impl CallState {
    fn state(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_place(&self, place: CallPlace) {
        let printed = match &place {
            CallPlace::With(holder) => holder.printed(),
            CallPlace::InBatch(batched) => batched.holder.printed(),
            CallPlace::Queued(_) => 0,
        };
        let placed_at = match &place {
            CallPlace::With(_) | CallPlace::InBatch(_) if is_heard(Level::Debug) => Some(Instant::now()),
            CallPlace::With(_) | CallPlace::InBatch(_) | CallPlace::Queued(_) => None,
        };
        let mut state = self.state();
        state.place = Some(place);
        state.printed = printed;
        state.placed_at = placed_at;
    }

    pub(crate) fn place(&self) -> Option<CallPlace> {
        self.state().place.clone()
    }

    /// Since when a worker has it; none if it has not, or if nobody listened when it got it.
    pub(crate) fn placed_at(&self) -> Option<Instant> {
        self.state().placed_at
    }

    pub(crate) fn holder(&self) -> Option<Arc<dyn Holder>> {
        match self.place()? {
            CallPlace::With(holder) => Some(holder),
            CallPlace::InBatch(batched) => Some(Arc::clone(&batched.holder)),
            CallPlace::Queued(_) => None,
        }
    }

    /// The number under which its worker knows it: together with others, it has theirs.
    pub(crate) fn sent_as(&self, own: CallId) -> CallId {
        match self.place() {
            Some(CallPlace::InBatch(batched)) => batched.carrier,
            Some(CallPlace::With(_) | CallPlace::Queued(_)) | None => own,
        }
    }

    /// How many lines its worker had printed when it got the call, as far as they were read.
    pub(crate) fn printed(&self) -> u64 {
        self.state().printed
    }

    pub(crate) fn end(&self, end: CallEnd) {
        let mut state = self.state();
        if matches!(state.outcome, EndState::Open) {
            state.outcome = EndState::Ended(end);
            wake(state);
        } else {
            // Dropped after the lock: what an end holds may lead back here.
            drop(state);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.state().outcome, EndState::Open)
    }

    /// Adds an item. Gives what waited before it.
    pub(crate) fn item(&self, item: Encoded) -> Portion {
        let mut state = self.state();
        let before = state.unread;
        if state.abandoned {
            return before;
        }
        state.unread.add_item(item.payload_len());
        state.items.push_back(item);
        if before.items == 0 {
            wake(state);
        }
        before
    }

    /// What has come and was not read.
    pub(crate) fn take_items(&self) -> VecDeque<Encoded> {
        std::mem::take(&mut self.state().items)
    }

    pub(crate) fn progress(&self, progress: Progress) {
        let mut state = self.state();
        state.progress = Some(progress);
        wake(state);
    }

    /// The latest progress since this was asked last.
    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.state().progress.take()
    }

    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        state.unread = Portion::default();
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<CallEnd> {
        self.poll(context, |state| match std::mem::replace(&mut state.outcome, EndState::Taken) {
            EndState::Ended(end) => Poll::Ready(end),
            other => {
                state.outcome = other;
                Poll::Pending
            }
        })
    }

    /// The next item, or the end once all items are read.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Encoded, CallEnd>> {
        self.poll(context, |state| match state.items.pop_front() {
            Some(item) => {
                state.unread.remove_item(item.payload_len());
                Poll::Ready(Ok(item))
            }
            None => match std::mem::replace(&mut state.outcome, EndState::Taken) {
                EndState::Ended(end) => Poll::Ready(Err(end)),
                other => {
                    state.outcome = other;
                    Poll::Pending
                }
            },
        })
    }

    /// Ready once the call has ended, whoever takes the end.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll(context, |state| match state.outcome {
            EndState::Open => Poll::Pending,
            EndState::Ended(_) | EndState::Taken => Poll::Ready(()),
        })
    }

    fn poll<T>(&self, context: &mut Context<'_>, look: impl FnOnce(&mut Inner) -> Poll<T>) -> Poll<T> {
        let mut state = self.state();
        let seen = look(&mut state);
        if seen.is_pending() {
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        seen
    }
}

fn wake(mut state: MutexGuard<'_, Inner>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
