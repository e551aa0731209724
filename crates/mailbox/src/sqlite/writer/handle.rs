//! The one writer of a file in this process, and the queues that this process has opened in the file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use snakepit_custody::without_file_size_signal;
use tokio::sync::watch;

use super::FileWriter;
use super::operation_queue::OperationQueue;
use crate::sqlite::storage::lock_wait::within;
use crate::sqlite::storage::{DatabaseFile, Inode};
use crate::sqlite::transaction::register;
use crate::{BackendErrorKind, MailboxError, SettingsChange};

/// How long dropping the last handle waits for the file to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that this process has of one file. The writer ends when the last handle is dropped.
pub(crate) struct WriterHandle {
    file: Arc<DatabaseFile>,
    inode: Option<Inode>,
    operations: Arc<OperationQueue>,
    pub(crate) open_queues: Arc<OpenQueues>,
}

/// Says whether a queue was closed in this process.
pub(crate) type CloseSignal = Arc<watch::Sender<bool>>;

/// The queues of a file that are open in this process. Closing one handle of a queue closes all of them.
#[derive(Default)]
pub(crate) struct OpenQueues {
    signals: Mutex<HashMap<Arc<str>, Weak<watch::Sender<bool>>>>,
}

impl OpenQueues {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<watch::Sender<bool>>>> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a queue. If the queue was closed, its new handles get a new signal and are open.
    pub(crate) fn open(&self, queue: &Arc<str>) -> CloseSignal {
        let mut signals = self.lock();
        signals.retain(|_, signal| signal.strong_count() > 0);
        let known = signals.get(queue).and_then(Weak::upgrade).filter(|signal| !*signal.borrow());
        known.unwrap_or_else(|| {
            let signal = Arc::new(watch::Sender::new(false));
            signals.insert(Arc::clone(queue), Arc::downgrade(&signal));
            signal
        })
    }

    /// Reports whether the queue was closed in this process. A queue that was never opened here counts as
    /// open.
    pub(crate) fn is_closed(&self, queue: &str) -> bool {
        self.lock().get(queue).and_then(Weak::upgrade).is_some_and(|signal| *signal.borrow())
    }
}

impl Drop for WriterHandle {
    /// Waits for the file to be closed, so that a process that ends right afterwards leaves one complete
    /// file.
    fn drop(&mut self) {
        self.operations.end();
        self.operations.wait_until_closed(CLOSE_TIMEOUT);
    }
}

impl WriterHandle {
    pub(crate) fn file(&self) -> &Arc<DatabaseFile> {
        &self.file
    }

    pub(crate) fn operations(&self) -> &OperationQueue {
        &self.operations
    }

    /// Returns the handle that this process has for the file, or creates one. Also creates the queue in the
    /// file, so that replies find it.
    pub(crate) fn of(
        file: DatabaseFile,
        queue: &str,
        change: &SettingsChange,
    ) -> Result<Arc<Self>, MailboxError> {
        static HANDLES: Mutex<Option<HashMap<PathBuf, Weak<WriterHandle>>>> = Mutex::new(None);
        let open = || {
            let connection = file.connect()?;
            register(&connection, &file, queue, change).map_err(|error| error.explain(&file.path))?;
            Ok(connection)
        };
        let connection = without_file_size_signal(|| within(file.lock_timeout, open))?;
        let inode = file.inode();
        // Declared before the lock, so that it is dropped after the lock: dropping the last handle of a writer waits until
        // the writer has closed its file.
        let _outdated;
        let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = handles.get_or_insert_default();
        handles.retain(|_, handle| handle.strong_count() > 0);
        match handles.get(&file.path).and_then(Weak::upgrade) {
            Some(known) if known.inode == inode && !known.operations.is_writer_gone() => return Ok(known),
            outdated => _outdated = outdated,
        }
        let file = Arc::new(file);
        let failed = |error: std::io::Error| {
            MailboxError::backend_caused(
                BackendErrorKind::Other,
                format!("the writer of {} cannot be started", file.path.display()),
                error,
            )
        };
        let operations = Arc::new(OperationQueue::new().map_err(failed)?);
        let open_queues = Arc::new(OpenQueues::default());
        let writer =
            FileWriter::new(Arc::clone(&file), Arc::clone(&operations), Arc::clone(&open_queues), connection);
        std::thread::Builder::new().name("mailbox".into()).spawn(move || writer.run()).map_err(failed)?;
        let handle = Arc::new(Self { file, inode, operations, open_queues });
        handles.insert(handle.file.path.clone(), Arc::downgrade(&handle));
        Ok(handle)
    }
}
