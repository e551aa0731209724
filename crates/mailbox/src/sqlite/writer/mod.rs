//! The one thread of this process that uses the file. It takes all queued operations, runs them in one
//! transaction, and answers when the log is on disk. So many callers share one sync. A receive does not wait
//! for the sync: it is answered after the commit.
//!
//! Owns the connection and the waiting callers. Must not know SQL beyond the limits of a transaction:
//! `transaction` has the statements.
//!
//! An operation passes `handle` (the writer of a file), `operation_queue`, `contention` (whether to let
//! messages gather first), `batch` (the operations of one transaction), `waiting` (operations that found
//! nothing) and `notifier` (wakes other processes). `idle` tidies up an idle file. `failpoint` injects faults
//! for tests.

pub(crate) mod batch;
mod contention;
pub(crate) mod failpoint;
pub(crate) mod handle;
mod idle;
mod notifier;
pub(crate) mod operation_queue;
mod waiting;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use snakepit_custody::without_file_size_signal;

use batch::{OperationBatch, known_queue_number, newest_reply, receivable, report};
use contention::{Contention, GATHERING_FOR_BATCHES};
use failpoint::{FaultPoint, StepAction, reach};
use handle::OpenQueues;
use notifier::Notifier;
use operation_queue::{OperationQueue, WriterWakeup};
use waiting::WaitingOperations;

use super::error::{OperationError, concerns_one_operation, explain};
use super::operation::{OperationOutput, QueuedOperation};
use super::storage::lock_wait::{sleep_precisely, within};
use super::storage::wal::{self, Wal};
use super::storage::{DatabaseFile, Inode};
use super::stored_time::{Micros, micros};
use super::transaction::{Transaction, TransactionEvent};
use crate::backend::MessageIds;
use crate::{BackendErrorKind, MailboxError};

/// How often the writer looks for commits without a notification: the process died before it sent one, or the
/// system cannot watch files.
const LOOK: Duration =
    if cfg!(target_os = "linux") { Duration::from_secs(3) } else { Duration::from_millis(250) };

/// The writer lets operations gather until there are as many as in the last batch, but only for this fraction
/// (one eighth) of the time that the last batch took.
const GATHERING: u32 = 8;
/// The longest time for which operations gather.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// The log is synced no later than this after a commit that changed only leases.
const LEASES_ON_DISK: Duration = Duration::from_millis(10);

/// The writer tidies up a file that nobody has changed for this long.
const IDLE: Duration = Duration::from_secs(1);
/// How long tidying up and closing wait for the locks of other processes.
const TIDY_TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) struct FileWriter {
    file: Arc<DatabaseFile>,
    operations: Arc<OperationQueue>,
    notifier: Notifier,
    /// `None` after an error that concerns the file. The next operation opens the file again.
    connection: Option<Connection>,
    /// The write-ahead log of the connection.
    log: Option<Wal>,
    /// When to sync the log although no caller waits for it: a commit has changed only leases.
    sync_at: Option<Micros>,
    contention: Contention,
    /// The generation with which the main file is known to be marked as incomplete without its log.
    generation: Option<i64>,
    /// When to check whether the file is idle, and SQLite's data version at the last check.
    tidy_at: Option<Micros>,
    tidy_version: Option<i64>,
    inode: Option<Inode>,
    /// A sync, or other disk I/O, has failed. So the content of the log may not be on disk.
    is_log_doubtful: bool,
    queues: HashMap<Arc<str>, i64>,
    waiting: WaitingOperations,
    /// SQLite's data version at the last look. A commit of another process changes it.
    version: Option<i64>,
    looked: Micros,
    /// The number of operations in the last batch, and the time that they took.
    last: (usize, Duration),
    ids: MessageIds,
    open_queues: Arc<OpenQueues>,
}

/// Calls a method of the operation queue when it is dropped, even if the writer panics.
struct QueueGuard<'a>(&'a OperationQueue, fn(&OperationQueue));

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        (self.1)(self.0);
    }
}

impl FileWriter {
    pub(crate) fn new(
        file: Arc<DatabaseFile>,
        operations: Arc<OperationQueue>,
        open_queues: Arc<OpenQueues>,
        connection: Connection,
    ) -> Self {
        Self {
            sync_at: None,
            contention: Contention::default(),
            notifier: Notifier::of(&file.path),
            inode: file.inode(),
            log: Wal::open(&file.path).ok(),
            connection: Some(connection),
            generation: None,
            tidy_at: Some(file.now().saturating_add(micros(IDLE))),
            tidy_version: None,
            is_log_doubtful: false,
            queues: HashMap::new(),
            waiting: WaitingOperations::default(),
            version: None,
            looked: 0,
            last: (0, Duration::ZERO),
            ids: MessageIds::new(),
            open_queues,
            operations,
            file,
        }
    }

    fn now(&self) -> Micros {
        self.file.now()
    }

    fn in_future(&self, time: Duration) -> Micros {
        self.now().saturating_add(micros(time))
    }

    /// Serves operations until no handle is left.
    pub(crate) fn run(self) {
        let operations = Arc::clone(&self.operations);
        // Dropped last: when it reports the file as closed, the writer has no file open.
        let _closed = QueueGuard(&operations, OperationQueue::close);
        let mut writer = self;
        sleep_precisely();
        // SIGXFSZ stays blocked for the whole life of this thread: SQLite may write at any time, and reports
        // failed writes itself.
        without_file_size_signal(|| {
            within(writer.file.lock_timeout, || {
                let _gone = QueueGuard(&operations, OperationQueue::abandon);
                writer.serve();
            });
            within(TIDY_TIMEOUT, || writer.close());
        });
    }

    fn serve(&mut self) {
        loop {
            let (count, took) = self.last;
            if count > 1 {
                self.operations.gather(count, took / GATHERING);
            }
            let timeout = self.time_to_next();
            // Notifications concern only waiting operations.
            let notified = self.notifier.notified().filter(|_| !self.waiting.is_empty());
            let WriterWakeup { mut operations, is_notified, is_over } =
                self.operations.wait(notified, timeout);
            if is_over {
                return;
            }
            if is_notified {
                self.notifier.clear();
            }
            if (is_notified || !operations.is_empty())
                && let Some(connection) = &self.connection
                && self.contention.may_gather(
                    self.now(),
                    &operations,
                    &self.waiting,
                    &self.queues,
                    connection,
                )
            {
                self.operations.gather(1, GATHERING_FOR_BATCHES);
                operations.extend(self.operations.take());
            }
            let is_stirred = !self.waiting.is_empty() && self.look();
            // Reads do not delay tidying up.
            let may_change = is_stirred || operations.iter().any(|operation| !operation.operation.is_read());
            if is_stirred || !operations.is_empty() {
                let (count, began) = (operations.len(), self.file.clock.since_boot());
                self.transact(OperationBatch { operations: operations.into(), done: Vec::new(), is_stirred });
                self.contention.note(self.now());
                let took = self.file.clock.since_boot().saturating_sub(began);
                self.last = (count, took.min(LONGEST_GATHERING * GATHERING));
            }
            if may_change {
                self.tidy_at = Some(self.in_future(IDLE));
            } else if self.tidy_at.is_some_and(|at| at <= self.now()) {
                within(TIDY_TIMEOUT, || self.tidy());
            }
            if self.sync_at.is_some_and(|at| at <= self.now())
                && let Err(error) = self.sync()
            {
                tracing::warn!(path = %self.file.path.display(), %error, "the leases of a mailbox are not on disk");
            }
            self.waiting.expire(self.now());
        }
    }

    /// Returns how long the writer may sleep if no operation and no notification comes. `None` means without
    /// limit.
    fn time_to_next(&self) -> Option<Duration> {
        let waiting = self.waiting.next().map(|next| next.min(self.looked.saturating_add(micros(LOOK))));
        let next = waiting.into_iter().chain(self.tidy_at).chain(self.sync_at).min()?;
        Some(Duration::from_micros(next.saturating_sub(self.now()).max(0) as u64))
    }

    /// Reports whether there may be something for waiting operations, because another process has committed
    /// or because a lease, a delay or a rate period is over.
    fn look(&mut self) -> bool {
        let now = self.now();
        if now >= self.looked.saturating_add(micros(LOOK)) {
            self.looked = now;
            self.notifier.renew();
        }
        let is_due = self.waiting.queues().any(|(_, waiters)| waiters.next.is_some_and(|next| next <= now));
        let Some(connection) = &self.connection else { return true };
        let Ok(version) = wal::data_version(connection) else { return true };
        if self.version.replace(version) == Some(version) {
            return is_due;
        }
        // The look only reads. A process that has nothing to write must not take the write lock from others.
        let queues = &self.queues;
        let mut is_there = is_due;
        for (name, waiters) in self.waiting.queues() {
            let Some(queue) = queues.get(name) else { return true };
            if !waiters.receives.is_empty() {
                let Ok((is_ready, next)) = receivable(connection, *queue, now) else { return true };
                waiters.next = next;
                is_there |= is_ready;
            }
            if !waiters.results.is_empty() {
                let Ok(newest) = newest_reply(connection) else { return true };
                is_there |= newest > std::mem::replace(&mut waiters.newest_reply, newest);
            }
        }
        is_there
    }

    /// Runs the batch, serves waiting operations, and answers the callers.
    fn transact(&mut self, mut batch: OperationBatch) {
        if let Err(error) = self.connect().and_then(|()| self.run_batch(&mut batch)) {
            // The batch was rolled back, or its outcome is unknown. So all its operations fail, including
            // waiting ones that it has served. All other waiting operations fail too if the batch was to
            // serve them, or if the connection is lost.
            let fails_all = batch.is_stirred || self.connection.is_none();
            let waiting = if fails_all { self.waiting.take_all() } else { Vec::new() };
            let failed =
                batch.operations.into_iter().chain(batch.done.into_iter().map(|(operation, _)| operation));
            for operation in failed.chain(waiting) {
                operation.finish(Err(error.clone()));
            }
            return;
        }
        for (operation, mut result) in batch.done {
            if let Ok(OperationOutput::Received(received)) = &mut result {
                received.commit(&self.operations, &operation.queue);
            }
            operation.finish(result);
        }
        reach(FaultPoint::Answered);
    }

    /// Opens the file unless it is open. If the open file was moved, removed or replaced, closes it and
    /// returns an error: the next operation opens the path again.
    fn connect(&mut self) -> Result<(), MailboxError> {
        let path = self.file.path.display();
        if self.connection.is_some() {
            if self.inode == self.file.inode() {
                return Ok(());
            }
            let error = MailboxError::backend(
                BackendErrorKind::Io,
                format!(
                    "{path} was moved or removed while it was open: the next operation opens it again, or creates it"
                ),
            );
            self.disconnect();
            return Err(error);
        }
        let connection = self.file.connect()?;
        if self.is_log_doubtful {
            // After a failed sync, a later sync may succeed although data was lost. So nothing more is
            // appended to this log: its content is moved into the main file, and the log starts again.
            if !wal::restart(&connection).map_err(|error| explain(&self.file.path, error))? {
                return Err(MailboxError::Busy(format!("others use the log of {path} after a disk error")));
            }
            self.is_log_doubtful = false;
        }
        self.log = Some(Wal::open(&self.file.path).map_err(|error| unsynced(&self.file.path, error))?);
        self.inode = self.file.inode();
        self.notifier.renew();
        self.connection = Some(connection);
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.log = None;
        self.sync_at = None;
        self.generation = None;
        self.tidy_at = None;
        self.queues.clear();
        self.version = None;
    }

    /// Drops the connection after an error that concerns the file.
    fn disconnect_after(&mut self, error: &rusqlite::Error) {
        self.is_log_doubtful |= error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
        self.disconnect();
    }

    /// Runs the batch in one transaction, and syncs the log if a caller relies on it.
    fn run_batch(&mut self, batch: &mut OperationBatch) -> Result<(), MailboxError> {
        match self.try_batch(batch) {
            Ok((events, need)) => {
                match need {
                    SyncNeed::Nothing => {}
                    SyncNeed::Leases => {
                        let at = self.in_future(LEASES_ON_DISK);
                        self.sync_at.get_or_insert(at);
                    }
                    SyncNeed::Promises => self.sync()?,
                }
                report(&self.queues, &events);
                Ok(())
            }
            Err(error) => {
                // If the file was only busy, no transaction has begun, and the connection is still good.
                if !self.connection.as_ref().is_some_and(|connection| is_busy(connection, &error)) {
                    self.disconnect_after(&error);
                }
                Err(explain(&self.file.path, error))
            }
        }
    }

    /// Syncs the log to disk. No caller is told that a change is done before this has succeeded.
    fn sync(&mut self) -> Result<(), MailboxError> {
        self.sync_at = None;
        let synced = match &self.log {
            Some(log) => log.sync(self.file.log_sync.as_ref()),
            None => Err(std::io::Error::other("the log is not open")),
        };
        synced.map_err(|error| {
            self.is_log_doubtful = true;
            self.disconnect();
            unsynced(&self.file.path, error)
        })
    }

    /// Runs and commits the transaction. Returns the events to report, and whether the log must be synced.
    fn try_batch(
        &mut self,
        batch: &mut OperationBatch,
    ) -> rusqlite::Result<(Vec<(i64, TransactionEvent)>, SyncNeed)> {
        let Self {
            connection: Some(connection),
            generation,
            queues,
            waiting,
            ids,
            file,
            notifier,
            open_queues,
            ..
        } = self
        else {
            return Ok((Vec::new(), SyncNeed::Nothing));
        };
        reach(FaultPoint::Begin);
        // A batch that only reads does not take the write lock.
        let only_reads = !batch.is_stirred && batch.operations.iter().all(|it| it.operation.is_read());
        let turn = (!only_reads).then(|| notifier.write_turn());
        if only_reads {
            connection.prepare_cached("BEGIN")?.execute([])?;
        } else {
            wal::begin(connection, generation, || batch.may_write(connection, queues, file.now()))?;
        }
        reach(FaultPoint::Begun);
        let changes = connection.total_changes();
        let has_promises = batch.operations.iter().any(QueuedOperation::is_promise);
        let mut transaction = Transaction::new(connection, file.clock.as_ref(), ids, open_queues);
        while let Some(operation) = batch.operations.pop_front() {
            let queue = known_queue_number(connection, queues, &operation)?;
            let result = if operation.is_abandoned() {
                Err(MailboxError::Closed(operation.queue.to_string()))
            } else if let Some(queue) = queue {
                match transaction.serve(queue, &operation.operation) {
                    Ok(output) => Ok(output),
                    Err(OperationError::Refused(error)) => Err(error),
                    Err(OperationError::Sql(error)) if concerns_one_operation(&error) => {
                        Err(explain(&file.path, error))
                    }
                    Err(OperationError::Sql(error)) => {
                        batch.operations.push_front(operation);
                        return Err(error);
                    }
                }
            } else {
                Err(file.missing(&operation.queue))
            };
            let may_wait = !operation.wait().is_zero();
            let now = transaction.now();
            match result {
                // The operation waits from now on, so that a later operation of this batch can serve it.
                Ok(OperationOutput::Received(received)) if received.messages.is_empty() && may_wait => {
                    waiting.add(operation, received.next, now);
                }
                Ok(OperationOutput::Reply(None)) if may_wait => waiting.add(operation, None, now),
                result => batch.done.push((operation, result)),
            }
            reach(FaultPoint::Operation);
        }
        batch.serve_waiting(&mut transaction, queues, waiting)?;
        let (is_stirred, events) = (!transaction.stirred.is_empty(), std::mem::take(&mut transaction.events));
        reach(FaultPoint::Commit);
        connection.prepare_cached("COMMIT")?.execute([])?;
        drop(turn);
        reach(FaultPoint::Committed);
        if is_stirred && reach(FaultPoint::Notify) == StepAction::Go {
            notifier.notify();
            reach(FaultPoint::Notified);
        }
        let need = match (has_promises, connection.total_changes() != changes) {
            (true, _) => SyncNeed::Promises,
            (false, true) => SyncNeed::Leases,
            (false, false) => SyncNeed::Nothing,
        };
        Ok((events, need))
    }
}

/// Reports whether the locks of others have kept the transaction from beginning.
fn is_busy(connection: &Connection, error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && connection.is_autocommit()
}

fn unsynced(path: &Path, error: std::io::Error) -> MailboxError {
    let reason = format!(
        "the log of {} cannot be brought to disk, so whether the change is done is unknown: look for disk errors; the next \
         operation opens the file again",
        path.display()
    );
    MailboxError::backend_caused(BackendErrorKind::Io, reason, error)
}

/// When the log must be synced after a transaction.
enum SyncNeed {
    Nothing,
    /// Soon, or with the next promise: only leases have changed. A power cut also ends the holders of leases,
    /// and the messages are delivered again. There is a time limit, because otherwise a message whose handler
    /// crashes the machine would never count as delivered.
    Leases,
    /// Before any caller is answered.
    Promises,
}
