//! Subscribers: bounded queues that [`emit`](crate::emit) fills without a runtime and without waiting. A subscription
//! is a filter for the events of this process, by level or by pool.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Event, Level, emit, emit_with};

/// The number of events that wait for a slow subscriber before it loses the oldest.
const KEPT: usize = 4096;

/// The most verbose level that has a listener. 0 without listeners.
static WANTED: AtomicU8 = AtomicU8::new(0);
static QUEUES: SubscriberList = Mutex::new(Vec::new());

/// Reports whether anyone has subscribed to events of this level.
pub(crate) fn wants(level: Level) -> bool {
    WANTED.load(Ordering::Relaxed) >= level as u8
}

/// A function that is called for every event.
type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

static OBSERVERS: Mutex<Vec<Observer>> = Mutex::new(Vec::new());

/// Calls a function for every event from now on, on the thread where the event happens. Use it if the last event before
/// an exit must not be missed. The engine waits for the function. For everything else use [`subscribe`].
pub fn observe(observer: impl Fn(&Event) + Send + Sync + 'static) {
    locked(&OBSERVERS).push(Arc::new(observer));
    note_wanted(&locked(&QUEUES));
}

/// Delivers an event to all observers and to the subscribers of its level.
pub(crate) fn deliver(event: Event, level: Level) {
    // Called without the lock, because an observer may emit events itself.
    let observers: Vec<Observer> = locked(&OBSERVERS).clone();
    for observer in observers {
        observer(&event);
    }
    push_to(&locked(&QUEUES), event, |queue| queue.level >= level);
}

/// Adds an event to the queues that want it. The last queue gets the event itself, so a single subscriber costs no
/// copy.
fn push_to(queues: &[Arc<SubscriberQueue>], event: Event, wants: impl Fn(&SubscriberQueue) -> bool) {
    let mut wanting = queues.iter().filter(|queue| wants(queue)).peekable();
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

type SubscriberList = Mutex<Vec<Arc<SubscriberQueue>>>;

#[derive(Debug)]
struct SubscriberQueue {
    level: Level,
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Event>,
    lost: u64,
    waker: Option<Waker>,
    is_closed: bool,
}

impl SubscriberQueue {
    fn new(level: Level) -> Arc<Self> {
        Arc::new(Self { level, state: Mutex::default(), filled: Condvar::new() })
    }

    fn push(&self, event: Event) {
        let mut state = locked(&self.state);
        if state.events.len() == KEPT {
            // The oldest event is dropped, because the end of something matters more than its beginning.
            state.events.pop_front();
            state.lost += 1;
        }
        state.events.push_back(event);
        self.wake(state);
    }

    fn close(&self) {
        let mut state = locked(&self.state);
        state.is_closed = true;
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, QueueState>) {
        let waker = state.waker.take();
        drop(state);
        self.filled.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Subscribes to all events of this process from now on. See [`subscribe_to`].
pub fn subscribe() -> Subscription {
    subscribe_to(Level::Debug)
}

/// Subscribes to the events of this level and of more urgent ones. A subscription to [`Level::Info`] does not slow down an
/// engine with many calls.
///
/// A slow subscriber may be 4096 events behind. Then it loses the oldest, and [`Subscription::lost`] counts them.
pub fn subscribe_to(level: Level) -> Subscription {
    let queue = SubscriberQueue::new(level);
    let mut queues = locked(&QUEUES);
    queues.push(Arc::clone(&queue));
    note_wanted(&queues);
    Subscription { queue, origin: None }
}

fn note_wanted(queues: &[Arc<SubscriberQueue>]) {
    let quietest = queues.iter().map(|queue| queue.level as u8).max().unwrap_or(0);
    let quietest = if locked(&OBSERVERS).is_empty() { quietest } else { Level::Debug as u8 };
    WANTED.store(quietest, Ordering::Relaxed);
}

/// The origin of events, such as a pool. Its events go to its own subscribers and to all subscribers of the process.
/// When the origin is dropped, its subscriptions end.
#[derive(Debug, Default)]
pub struct EventOrigin {
    queues: Arc<SubscriberList>,
}

impl EventOrigin {
    /// Subscribes to the events that [`EventOrigin::emit_with`] emits, of any level.
    pub fn subscribe(&self) -> Subscription {
        let queue = SubscriberQueue::new(Level::Debug);
        locked(&self.queues).push(Arc::clone(&queue));
        Subscription { queue, origin: Some(Arc::clone(&self.queues)) }
    }

    /// Creates and delivers an event, if anyone listens.
    pub fn emit_with(&self, event: impl FnOnce() -> Event) {
        if locked(&self.queues).is_empty() {
            return emit_with(Level::Warn, event);
        }
        let event = event();
        emit(event.clone());
        push_to(&locked(&self.queues), event, |_| true);
    }
}

impl Drop for EventOrigin {
    fn drop(&mut self) {
        locked(&self.queues).iter().for_each(|queue| queue.close());
    }
}

/// A queue of events: those of all engines of this process, or those of one [`EventOrigin`]. Drop it to unsubscribe.
///
/// ```no_run
/// use snakepit::telemetry::{Level, subscribe_to};
///
/// # async fn example() {
/// let mut events = subscribe_to(Level::Info);
/// while let Some(event) = events.next().await {
///     println!("{} {:?}", event.name(), event.fields());
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    queue: Arc<SubscriberQueue>,
    /// The queues of its origin, or `None` if it covers the whole process.
    origin: Option<Arc<SubscriberList>>,
}

impl Subscription {
    /// Waits for the next event. Returns `None` if the pool of the subscription is gone.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = locked(&self.queue.state);
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Like [`Subscription::next`], for threads without a runtime. Also returns `None` after the timeout.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread without a runtime waits on a condition variable, in real time"
    )]
    pub fn next_within(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = locked(&self.queue.state);
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            if state.is_closed {
                return None;
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.queue.filled.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.queue.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Takes all events that have arrived.
    pub fn drain(&mut self) -> Vec<Event> {
        locked(&self.queue.state).events.drain(..).collect()
    }

    /// Returns how many events were lost because they came faster than they were read.
    pub fn lost(&self) -> u64 {
        locked(&self.queue.state).lost
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut queues = locked(self.origin.as_deref().unwrap_or(&QUEUES));
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        if self.origin.is_none() {
            note_wanted(&queues);
        }
    }
}
