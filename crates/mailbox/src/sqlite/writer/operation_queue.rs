//! Operations on their way to the writer, and how it is woken.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::MailboxError;
use crate::sqlite::operation::QueuedOperation;

/// How many operations may wait for the writer; further callers wait for a permit.
const PERMITS: usize = 4096;
/// How many operations one transaction takes.
const BATCH: usize = 1024;

/// What the writer has to do next.
pub(crate) struct WriterWakeup {
    pub(crate) operations: Vec<QueuedOperation>,
    /// Another process has committed something.
    pub(crate) is_notified: bool,
    /// No handle is left, and no operation waits.
    pub(crate) is_over: bool,
}

pub(crate) struct OperationQueue {
    state: Mutex<OperationQueueState>,
    closed: Condvar,
    waker: PipeWriter,
    sleeper: PipeReader,
    permits: Arc<Semaphore>,
}

#[derive(Default)]
struct OperationQueueState {
    operations: Vec<(QueuedOperation, Option<OwnedSemaphorePermit>)>,
    /// The writer sleeps, and nobody has woken it yet.
    is_asleep: bool,
    /// How many operations are worth waking the writer.
    wanted: usize,
    /// No handle is left that could add operations.
    is_over: bool,
    /// The writer has ended: no operation will be done any more.
    is_writer_gone: bool,
    /// The writer has closed the file.
    is_closed: bool,
}

impl OperationQueueState {
    fn take(&mut self, is_notified: bool) -> WriterWakeup {
        let count = self.operations.len().min(BATCH);
        let operations: Vec<_> =
            self.operations.drain(..count).map(|(operation, _permit)| operation).collect();
        WriterWakeup { is_over: self.is_over && operations.is_empty(), operations, is_notified }
    }
}

impl OperationQueue {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (sleeper, waker) = pipe()?;
        let permits = Arc::new(Semaphore::new(PERMITS));
        Ok(Self { state: Mutex::default(), closed: Condvar::new(), waker, sleeper, permits })
    }

    fn state(&self) -> MutexGuard<'_, OperationQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation as soon as there is a permit for it.
    pub(crate) async fn put(&self, operation: QueuedOperation) -> Result<(), MailboxError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        self.add(operation, permit)
    }

    /// Adds an operation that must not wait: messages that go back. There are no more of them than there were receives.
    pub(crate) fn put_now(&self, operation: QueuedOperation) {
        let _ = self.add(operation, None);
    }

    fn add(
        &self,
        operation: QueuedOperation,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), MailboxError> {
        let mut state = self.state();
        if state.is_writer_gone {
            return Err(writer_gone());
        }
        state.operations.push((operation, permit));
        if state.operations.len() >= state.wanted {
            self.wake(state);
        }
        Ok(())
    }

    fn wake(&self, mut state: MutexGuard<'_, OperationQueueState>) {
        if std::mem::take(&mut state.is_asleep) {
            drop(state);
            // One byte per sleep: the pipe cannot be full.
            let _ = (&self.waker).write_all(&[1]);
        }
    }

    /// No more operations will come.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        self.wake(state);
    }

    /// No more operations will be done: waiting ones are dropped, which tells their callers.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.is_writer_gone = true;
        let operations = std::mem::take(&mut state.operations);
        drop(state);
        drop(operations);
    }

    /// The writer has closed the file, or ends without.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.closed.notify_all();
    }

    /// Waits until the writer has closed the file, at most for `timeout`.
    pub(crate) fn wait_until_closed(&self, timeout: Duration) {
        let _ = self.closed.wait_timeout_while(self.state(), timeout, |state| !state.is_closed);
    }

    pub(crate) fn is_writer_gone(&self) -> bool {
        self.state().is_writer_gone
    }

    /// Takes the operations that wait.
    pub(crate) fn take(&self) -> Vec<QueuedOperation> {
        self.state().take(false).operations
    }

    /// Waits a little for so many operations: callers that have just been answered often have the next one ready, and in one
    /// transaction they cost one sync.
    pub(crate) fn gather(&self, operations: usize, timeout: Duration) {
        let mut state = self.state();
        if state.operations.len() < operations && !state.is_over {
            state.is_asleep = true;
            state.wanted = operations;
            drop(state);
            self.await_wakeup(None, Some(timeout));
        }
    }

    /// Waits for operations, for a notification, or until `timeout` is over.
    pub(crate) fn wait(&self, notified: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> WriterWakeup {
        let mut state = self.state();
        if state.operations.is_empty() && !state.is_over && timeout != Some(Duration::ZERO) {
            state.is_asleep = true;
            state.wanted = 1;
            drop(state);
            let is_notified = self.await_wakeup(notified, timeout);
            return self.state().take(is_notified);
        }
        state.take(false)
    }

    /// Returns whether a notification woke the writer.
    fn await_wakeup(&self, notified: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
        let mut fds = vec![PollFd::from_borrowed_fd(self.sleeper.as_fd(), PollFlags::IN)];
        fds.extend(notified.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        // An interruption is a wake-up without a reason, which does no harm.
        let _ = poll(&mut fds, timeout.as_ref());
        let is_notified = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        // A caller that woke the writer has cleared the flag, and its byte is in the pipe or about to be.
        let was_woken = !std::mem::take(&mut self.state().is_asleep);
        if was_woken {
            let _ = (&self.sleeper).read(&mut [0]);
        }
        is_notified
    }
}

pub(crate) fn writer_gone() -> MailboxError {
    MailboxError::backend("the mailbox's writer has ended: open the mailbox again")
}
