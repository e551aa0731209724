//! An adapter around the adapter under test. Records what the engine requests, and injects rare faults on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{self, BoxFuture, FutureExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::adapter::{
    Adapter, AtWork, CancelStage, Handle, Introduction, ProtocolFault, Reason, Spawner, StartError,
};
use crate::call::{Call, CallId, Portion};
use crate::custody;

/// What the engine requested, and the faults to inject.
#[derive(Default)]
pub(super) struct Recording {
    inits: AtomicUsize,
    starts: AtomicUsize,
    workers: Mutex<Vec<RecordedWorker>>,
    /// Cancels do not reach the worker.
    pub(super) deaf: AtomicBool,
    /// Workers seem to be busy with a call and show no sign of life.
    pub(super) frozen: AtomicBool,
    /// Terminating a worker never finishes.
    pub(super) clinging: AtomicBool,
    /// Calls reach their worker only after its end.
    pub(super) late: AtomicBool,
    changed: watch::Sender<()>,
}

/// A worker that became ready.
struct RecordedWorker {
    worker: String,
    handle: Arc<dyn Handle>,
    reasons: Vec<Reason>,
    /// The calls that are held back until the worker's end.
    withheld: Vec<Call>,
    breaks: watch::Sender<Option<ProtocolFault>>,
}

impl Recording {
    pub(super) fn inits(&self) -> usize {
        self.inits.load(Ordering::SeqCst)
    }

    /// Returns the number of starts of workers that were begun.
    pub(super) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// Returns the number of workers that became ready.
    pub(super) fn ready(&self) -> usize {
        self.entries().len()
    }

    /// Returns the reasons why each worker was terminated, in the order in which the workers became ready.
    pub(super) fn reasons(&self) -> Vec<Vec<Reason>> {
        self.entries().iter().map(|entry| entry.reasons.clone()).collect()
    }

    /// Returns the number of calls that are held back.
    pub(super) fn withheld(&self) -> usize {
        self.entries().iter().map(|entry| entry.withheld.len()).sum()
    }

    /// Makes a worker's connection appear broken to the engine.
    pub(super) fn break_worker(&self, number: usize, why: &str) {
        self.entries()[number].breaks.send_replace(Some(why.into()));
    }

    /// Returns the process of a worker, as its handle reports it.
    pub(super) fn process(&self, number: usize) -> Option<custody::WorkerProcess> {
        self.entries()[number].handle.process().cloned()
    }

    /// Returns a receiver of all changes from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Asserts that each worker that became ready was terminated exactly once.
    pub(super) fn assert_balanced(&self) {
        for entry in self.entries().iter() {
            let reasons = &entry.reasons;
            assert!(
                reasons.len() == 1,
                "worker {} was terminated {} times, for {reasons:?}",
                entry.worker,
                reasons.len()
            );
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<RecordedWorker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The adapter under test, with a record of what the engine requests.
pub(super) struct RecordingAdapter {
    pub(super) inner: Arc<dyn Adapter>,
    pub(super) recording: Arc<Recording>,
}

impl Adapter for RecordingAdapter {
    fn init<'a>(&'a self, spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        self.recording.inits.fetch_add(1, Ordering::SeqCst);
        self.inner.init(spawner)
    }

    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            self.recording.starts.fetch_add(1, Ordering::SeqCst);
            self.recording.changed.send_replace(());
            let worker = spawner.worker_id().to_string();
            let inner = self.inner.start_worker(spawner).await?;
            let breaks = watch::Sender::new(None);
            let mut entries = self.recording.entries();
            let number = entries.len();
            let handle = RecordingHandle {
                inner: Arc::clone(&inner),
                recording: Arc::clone(&self.recording),
                number,
                breaks: breaks.subscribe(),
                at_work: Mutex::default(),
            };
            entries.push(RecordedWorker {
                worker,
                handle: inner,
                reasons: Vec::new(),
                withheld: Vec::new(),
                breaks,
            });
            drop(entries);
            self.recording.changed.send_replace(());
            Ok(Arc::new(handle) as Arc<dyn Handle>)
        }
        .boxed()
    }

    fn starts_processes(&self) -> bool {
        self.inner.starts_processes()
    }
}

struct RecordingHandle {
    inner: Arc<dyn Handle>,
    recording: Arc<Recording>,
    number: usize,
    breaks: watch::Receiver<Option<ProtocolFault>>,
    /// The last call that the worker got.
    at_work: Mutex<Option<AtWork>>,
}

impl Handle for RecordingHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        self.inner.process()
    }

    fn introduction(&self) -> &Introduction {
        self.inner.introduction()
    }

    fn execute(self: Arc<Self>, call: Call) {
        if self.recording.late.load(Ordering::SeqCst) {
            self.recording.entries()[self.number].withheld.push(call);
            self.recording.changed.send_replace(());
            return;
        }
        let at_work = AtWork::new(call.id(), call.command(), Instant::now());
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) = Some(at_work);
        Arc::clone(&self.inner).execute(call);
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        if !self.recording.deaf.load(Ordering::SeqCst) {
            self.inner.cancel(call, stage);
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.inner.grant(call, more);
    }

    fn stacks(&self) -> BoxFuture<'_, Option<String>> {
        self.inner.stacks()
    }

    fn stacks_of(&self, call: CallId) -> BoxFuture<'_, Option<String>> {
        self.inner.stacks_of(call)
    }

    fn take_crash_stack(&self, printed: &mut Vec<String>) -> Option<String> {
        self.inner.take_crash_stack(printed)
    }

    fn ask_beat(&self) {
        self.inner.ask_beat();
    }

    fn beats(&self) -> Option<u64> {
        if self.recording.frozen.load(Ordering::SeqCst) { Some(0) } else { self.inner.beats() }
    }

    fn at_work(&self) -> Vec<AtWork> {
        if self.recording.frozen.load(Ordering::SeqCst) {
            let at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
            at_work.iter().cloned().collect()
        } else {
            self.inner.at_work()
        }
    }

    fn not_begun(&self) -> Vec<CallId> {
        self.inner.not_begun()
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async {
            let mut breaks = self.breaks.clone();
            let broken = async {
                let why = breaks.wait_for(Option::is_some).await;
                let why = why.ok().and_then(|why| why.clone());
                match why {
                    Some(why) => why,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                why = broken => why,
                why = self.inner.broken() => why,
            }
        }
        .boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        // Recorded at the request, because a future that is never polled was requested, too.
        self.recording.entries()[self.number].reasons.push(reason.clone());
        self.recording.changed.send_replace(());
        async move {
            self.inner.terminate(reason).await;
            let withheld = std::mem::take(&mut self.recording.entries()[self.number].withheld);
            for call in withheld {
                Arc::clone(&self.inner).execute(call);
            }
            if self.recording.clinging.load(Ordering::SeqCst) {
                future::pending::<()>().await;
            }
        }
        .boxed()
    }
}
