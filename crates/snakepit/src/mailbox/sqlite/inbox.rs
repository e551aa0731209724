//! Orders on their way to the writer, and how it is woken.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::order::{Answer, Ask};
use crate::mailbox::MailboxError;

/// How many orders may wait for the writer; whoever has one more waits outside.
const PLACES: usize = 4096;
/// How many orders are done in one transaction.
const GROUP: usize = 1024;

/// Something to do in a queue.
pub(super) struct Order {
    pub(super) queue: Arc<str>,
    pub(super) ask: Ask,
    /// None: nobody wants to know.
    pub(super) answer: Option<oneshot::Sender<Result<Answer, MailboxError>>>,
}

impl Order {
    pub(super) fn is_receive(&self) -> bool {
        matches!(self.ask, Ask::Receive(_))
    }

    /// Whether nobody waits for its answer any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.answer.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// What the writer has to do next.
pub(super) struct Woken {
    pub(super) orders: Vec<Order>,
    /// The bell has rung.
    pub(super) is_rung: bool,
    /// Nobody is left who could send orders, and none waits.
    pub(super) is_over: bool,
}

pub(super) struct Inbox {
    state: Mutex<State>,
    closed: Condvar,
    waker: PipeWriter,
    sleeper: PipeReader,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    orders: Vec<(Order, Option<OwnedSemaphorePermit>)>,
    /// The writer sleeps, and nobody has woken it yet.
    is_asleep: bool,
    /// How many orders are worth waking it.
    wanted: usize,
    /// Nobody will send orders any more.
    is_over: bool,
    /// Nobody will do them any more.
    is_deserted: bool,
    /// The writer has closed the file.
    is_closed: bool,
}

impl State {
    fn take(&mut self, is_rung: bool) -> Woken {
        let some = self.orders.len().min(GROUP);
        let orders: Vec<_> = self.orders.drain(..some).map(|(order, _place)| order).collect();
        Woken { is_over: self.is_over && orders.is_empty(), orders, is_rung }
    }
}

impl Inbox {
    pub(super) fn new() -> std::io::Result<Self> {
        let (sleeper, waker) = pipe()?;
        Ok(Self {
            state: Mutex::default(),
            closed: Condvar::new(),
            waker,
            sleeper,
            places: Arc::new(Semaphore::new(PLACES)),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an order over, when there is a place for it.
    pub(super) async fn place(&self, order: Order) -> Result<(), MailboxError> {
        let permit = Arc::clone(&self.places).acquire_owned().await.ok();
        self.put(order, permit)
    }

    /// Hands over what must not wait: messages that go back. There are not more of them than there were orders.
    pub(super) fn place_now(&self, order: Order) {
        let _ = self.put(order, None);
    }

    fn put(&self, order: Order, permit: Option<OwnedSemaphorePermit>) -> Result<(), MailboxError> {
        let mut state = self.state();
        if state.is_deserted {
            return Err(deserted());
        }
        state.orders.push((order, permit));
        if state.orders.len() >= state.wanted {
            self.wake(state);
        }
        Ok(())
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if std::mem::take(&mut state.is_asleep) {
            drop(state);
            // One byte per sleep: the pipe cannot be full.
            let _ = (&self.waker).write_all(&[1]);
        }
    }

    /// No more orders will come.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        self.wake(state);
    }

    /// No more orders will be done: those that wait are dropped, which tells their callers.
    pub(super) fn desert(&self) {
        let mut state = self.state();
        state.is_deserted = true;
        let orders = std::mem::take(&mut state.orders);
        drop(state);
        drop(orders);
    }

    /// The writer has closed the file, or is about to end without.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.closed.notify_all();
    }

    /// Waits until the writer has closed the file, but not for longer than this.
    pub(super) fn closed(&self, patience: Duration) {
        let _ = self.closed.wait_timeout_while(self.state(), patience, |state| !state.is_closed);
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.state().is_deserted
    }

    /// Waits until so many orders are there, but not for long: those who have just been answered often have the next one, and
    /// in one transaction they cost one sync.
    pub(super) fn gather(&self, orders: usize, patience: Duration) {
        let mut state = self.state();
        if state.orders.len() < orders && !state.is_over {
            state.is_asleep = true;
            state.wanted = orders;
            drop(state);
            self.rest(None, Some(patience));
        }
    }

    /// Waits for orders, for the bell, or until `patience` is over.
    pub(super) fn wait(&self, bell: Option<BorrowedFd<'_>>, patience: Option<Duration>) -> Woken {
        let mut state = self.state();
        if state.orders.is_empty() && !state.is_over && patience != Some(Duration::ZERO) {
            state.is_asleep = true;
            state.wanted = 1;
            drop(state);
            let is_rung = self.rest(bell, patience);
            return self.state().take(is_rung);
        }
        state.take(false)
    }

    /// Whether the bell woke it.
    fn rest(&self, bell: Option<BorrowedFd<'_>>, patience: Option<Duration>) -> bool {
        let mut fds = vec![PollFd::from_borrowed_fd(self.sleeper.as_fd(), PollFlags::IN)];
        fds.extend(bell.map(|bell| PollFd::from_borrowed_fd(bell, PollFlags::IN)));
        let timeout = patience
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        // An interruption is a wake-up without a reason, which does no harm.
        let _ = poll(&mut fds, timeout.as_ref());
        let is_rung = fds.get(1).is_some_and(|bell| !bell.revents().is_empty());
        let mut state = self.state();
        // Whoever has woken it has taken the mark away, and its byte is in the pipe or about to be.
        let is_marked = std::mem::take(&mut state.is_asleep);
        drop(state);
        if !is_marked {
            let _ = (&self.sleeper).read(&mut [0]);
        }
        is_rung
    }
}

pub(super) fn deserted() -> MailboxError {
    MailboxError::Backend { reason: "the mailbox's writer has ended: open it again".into(), source: None }
}
