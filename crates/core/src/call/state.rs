//! What a call shares with its caller: where it is, its items, its progress and its end.
//!
//! One allocation for each call. Each event takes one short lock. The first end counts, and later ones are ignored.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::lease::Holder;
use super::progress::{CallEnd, CallPlace, Progress};
use super::{CallId, Portion};
use crate::telemetry::{Level, is_heard};
use crate::value::EncodedItems;

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
    /// The time since which a worker has the call. Set only if debug events are listened to.
    placed_at: Option<Instant>,
    /// The number of lines that the worker had printed when it got the call.
    printed: u64,
    items: VecDeque<EncodedItems>,
    /// The amount of the items that the caller has not said it has read.
    unread: Portion,
    progress: Option<Progress>,
    outcome: EndState,
    abandoned: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct CallState {
    inner: Mutex<Inner>,
    /// Whether the caller was told that the call takes long.
    is_late: AtomicBool,
}

impl CallState {
    fn state(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the caller that the call takes long, so that it looks at its deadline.
    pub(crate) fn tell_late(&self) {
        self.is_late.store(true, Ordering::SeqCst);
        wake(self.state());
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::SeqCst)
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

    /// Returns the time since which a worker has the call. `None` if no worker has it, or if nothing listened to debug
    /// events when the worker got it.
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

    /// Returns the number under which the worker knows the call. A member of a batch has the number of the carrier.
    pub(crate) fn sent_as(&self, own: CallId) -> CallId {
        match self.place() {
            Some(CallPlace::InBatch(batched)) => batched.carrier,
            Some(CallPlace::With(_) | CallPlace::Queued(_)) | None => own,
        }
    }

    /// Returns how many lines the host had read from the worker when the worker got the call.
    pub(crate) fn printed(&self) -> u64 {
        self.state().printed
    }

    pub(crate) fn end(&self, end: CallEnd) {
        let mut state = self.state();
        if matches!(state.outcome, EndState::Open) {
            state.outcome = EndState::Ended(end);
            wake(state);
        } else {
            // Drop `end` after the lock is released: what it holds may lead back here.
            drop(state);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.state().outcome, EndState::Open)
    }

    /// Adds items. Returns how much was unread before them.
    pub(crate) fn items(&self, items: EncodedItems) -> Portion {
        let mut state = self.state();
        let before = state.unread;
        if state.abandoned {
            return before;
        }
        state.unread.add(Portion { items: items.len(), bytes: items.payload_len() as u64 });
        let is_first = state.items.is_empty();
        state.items.push_back(items);
        if is_first {
            wake(state);
        }
        before
    }

    /// Records that the caller has read so many of the items that it has polled for.
    pub(crate) fn has_read(&self, amount: Portion) {
        self.state().unread.remove(amount);
    }

    /// Removes and returns the items that were not polled for.
    pub(crate) fn take_items(&self) -> VecDeque<EncodedItems> {
        std::mem::take(&mut self.state().items)
    }

    pub(crate) fn progress(&self, progress: Progress) {
        let mut state = self.state();
        state.progress = Some(progress);
        wake(state);
    }

    /// Returns the latest progress, if it is new since the last call of this function.
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

    /// Polls for the next items, which came together, or for the end once there are no more.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<EncodedItems, CallEnd>> {
        self.poll(context, |state| match state.items.pop_front() {
            Some(items) => Poll::Ready(Ok(items)),
            None => match std::mem::replace(&mut state.outcome, EndState::Taken) {
                EndState::Ended(end) => Poll::Ready(Err(end)),
                other => {
                    state.outcome = other;
                    Poll::Pending
                }
            },
        })
    }

    /// Polls until the call has ended, without taking the end.
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
