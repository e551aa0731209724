//! The queue of operations for the writer, and how they wake it.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sqlite::operation::QueuedOperation;
use crate::{BackendErrorKind, MailboxError};

/// How many operations may be queued. Further callers wait for a permit.
const PERMITS: usize = 4096;
/// The largest number of operations in one transaction.
const BATCH: usize = 1024;

/// What the writer does next.
pub(crate) struct WriterWakeup {
    pub(crate) operations: Vec<QueuedOperation>,
    /// Another process has committed something.
    pub(crate) is_notified: bool,
    /// No handle is left, and no operation is queued.
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
    /// How many queued operations wake the writer.
    wanted: usize,
    /// No handle is left that could add operations.
    is_over: bool,
    /// The writer has ended and runs no more operations.
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

    /// Waits for a permit, then adds an operation.
    pub(crate) async fn put(&self, operation: QueuedOperation) -> Result<(), MailboxError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        self.add(operation, permit)
    }

    /// Adds an operation without a permit: the release of messages that nobody has taken. There are no more
    /// of these than there were receives.
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

    /// Announces that no more operations will come.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        self.wake(state);
    }

    /// Drops all queued operations, which fails them, and refuses further ones.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.is_writer_gone = true;
        let operations = std::mem::take(&mut state.operations);
        drop(state);
        drop(operations);
    }

    /// Announces that the writer has closed the file, or has ended without closing it.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.closed.notify_all();
    }

    /// Waits until the writer has closed the file, or until `timeout` is over.
    pub(crate) fn wait_until_closed(&self, timeout: Duration) {
        let _ = self.closed.wait_timeout_while(self.state(), timeout, |state| !state.is_closed);
    }

    pub(crate) fn is_writer_gone(&self) -> bool {
        self.state().is_writer_gone
    }

    /// Removes and returns queued operations, up to one batch.
    pub(crate) fn take(&self) -> Vec<QueuedOperation> {
        self.state().take(false).operations
    }

    /// Waits up to `timeout` for this many operations. Callers that were just answered often have their next
    /// operation ready, and in one transaction all of them cost one sync.
    pub(crate) fn gather(&self, operations: usize, timeout: Duration) {
        let mut state = self.state();
        if state.operations.len() < operations && !state.is_over {
            state.is_asleep = true;
            state.wanted = operations;
            drop(state);
            self.await_wakeup(None, Some(timeout));
        }
    }

    /// Waits for an operation, for a notification, or until `timeout` is over.
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

    /// Sleeps. Reports whether a notification has come.
    fn await_wakeup(&self, notified: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
        let mut fds = vec![PollFd::from_borrowed_fd(self.sleeper.as_fd(), PollFlags::IN)];
        fds.extend(notified.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        // A signal may interrupt this. A wake-up without a reason does no harm.
        let _ = poll(&mut fds, timeout.as_ref());
        let is_notified = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        // A caller that wakes the writer clears the flag first. Its byte is in the pipe, or about to be
        // written.
        let was_woken = !std::mem::take(&mut self.state().is_asleep);
        if was_woken {
            let _ = (&self.sleeper).read(&mut [0]);
        }
        is_notified
    }
}

pub(crate) fn writer_gone() -> MailboxError {
    MailboxError::backend(BackendErrorKind::Other, "the mailbox's writer has ended: open the mailbox again")
}
