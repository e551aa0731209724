//! Those who listen in this process: bounded queues, filled by whoever emits, without a runtime and without waiting.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Event, Level};

/// How many events wait for a slow listener before it loses the oldest.
const KEPT: usize = 4096;

/// The quietest level that anybody listens to; 0 if nobody listens.
static WANTED: AtomicU8 = AtomicU8::new(0);
static QUEUES: Mutex<Vec<Arc<Queue>>> = Mutex::new(Vec::new());

/// Whether anybody has subscribed to events of this level.
pub(super) fn wants(level: Level) -> bool {
    WANTED.load(Ordering::Relaxed) >= level as u8
}

/// Who is told at once.
type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

static OBSERVERS: Mutex<Vec<Observer>> = Mutex::new(Vec::new());

/// Calls this for every event from now on, where it happens and before that goes on: for those who must not miss the last one
/// before an exit. Whatever it does, the engine waits for; [`subscribe`] is for all else.
pub fn observe(observer: impl Fn(&Event) + Send + Sync + 'static) {
    locked(&OBSERVERS).push(Arc::new(observer));
    note_wanted(&locked(&QUEUES));
}

/// Gives an event to everybody who wants it.
pub(super) fn deliver(event: Event, level: Level) {
    // Not under the lock: an observer may emit events itself.
    let observers: Vec<Observer> = locked(&OBSERVERS).clone();
    for observer in observers {
        observer(&event);
    }
    let queues = locked(&QUEUES);
    let mut wanting = queues.iter().filter(|queue| queue.level >= level).peekable();
    while let Some(queue) = wanting.next() {
        if wanting.peek().is_none() {
            queue.push(event);
            break;
        }
        queue.push(event.clone());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Queue {
    level: Level,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    lost: u64,
    waker: Option<Waker>,
}

impl Queue {
    fn push(&self, event: Event) {
        let mut state = locked(&self.state);
        if state.events.len() == KEPT {
            // The oldest: how something ended is worth more than how it began.
            state.events.pop_front();
            state.lost += 1;
        }
        state.events.push_back(event);
        let waker = state.waker.take();
        drop(state);
        self.filled.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Hears of everything that happens in this process from now on. See [`subscribe_to`].
pub fn subscribe() -> Subscription {
    subscribe_to(Level::Debug)
}

/// Hears of what is at least this loud: an engine with many calls is not slowed down by somebody who asks for
/// [`Level::Info`].
///
/// 4096 events are kept for a listener that is slow; then it loses the oldest, and [`Subscription::lost`] counts them.
pub fn subscribe_to(level: Level) -> Subscription {
    let queue = Arc::new(Queue { level, state: Mutex::default(), filled: Condvar::new() });
    let mut queues = locked(&QUEUES);
    queues.push(Arc::clone(&queue));
    note_wanted(&queues);
    Subscription(queue)
}

fn note_wanted(queues: &[Arc<Queue>]) {
    let quietest = queues.iter().map(|queue| queue.level as u8).max().unwrap_or(0);
    let quietest = if locked(&OBSERVERS).is_empty() { quietest } else { Level::Debug as u8 };
    WANTED.store(quietest, Ordering::Relaxed);
}

/// The events of all engines of this process. It ends when it is dropped.
#[derive(Debug)]
#[must_use = "it hears nothing once it is dropped"]
pub struct Subscription(Arc<Queue>);

impl Subscription {
    /// The next event, as soon as there is one.
    pub async fn next(&mut self) -> Event {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut state = locked(&self.0.state);
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(event);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next event, for threads without a runtime; none if none came in time.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = locked(&self.0.state);
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.0.filled.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// What has come and was not read yet.
    pub fn drain(&mut self) -> Vec<Event> {
        locked(&self.0.state).events.drain(..).collect()
    }

    /// How many events were lost, because they came faster than they were read.
    pub fn lost(&self) -> u64 {
        locked(&self.0.state).lost
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut queues = locked(&QUEUES);
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.0));
        note_wanted(&queues);
    }
}
