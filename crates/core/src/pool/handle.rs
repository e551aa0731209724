//! A running pool, as its user holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{CommandGrowth, Health, HealthAnswer, Outcomes, PoolDirectory, PoolInner, PoolOptions};
use crate::call::{CallError, NoWorkersReason};
use crate::queue::{CircuitTable, SessionInfo, Suspect};
use crate::request::{CallBuilder, MapBuilder, StreamBuilder};
use crate::supervisor::{ReloadError, Reloaded, SupervisorHandle, tell_of_session_end};
use crate::telemetry::{Event, Level, Subscription, emit_with};
use crate::worker::WorkerOutput;
use snakepit_policy::{CountedFailures, Fingerprint, Sizing};

/// A running pool. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    pub(crate) shared: Arc<PoolInner>,
    pub(crate) supervisor: SupervisorHandle,
    pub(crate) pools: Arc<PoolDirectory>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.shared.name).finish()
    }
}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A call of a command; see [`Snakepit::call`].
    pub fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> CallBuilder<T> {
        CallBuilder::new(self, command, &args)
    }

    /// A call that answers with many values; see [`Snakepit::stream`].
    pub fn stream<T: DeserializeOwned>(&self, command: &str, args: impl Serialize) -> StreamBuilder<T> {
        StreamBuilder::new(self, command, &args)
    }

    /// One command over many inputs; see [`Snakepit::map`].
    pub fn map<T, I>(&self, command: &str, inputs: I) -> MapBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize,
    {
        MapBuilder::new(self, command, inputs)
    }

    /// Sets the number of workers; the load no longer decides. Those that are too many finish what they have.
    ///
    /// With 0 the pool serves nobody: calls fail at once with [`CallError::NoWorkers`]; those that wait already go on waiting.
    pub fn scale(&self, workers: usize) {
        self.shared.emptied.store(workers == 0, Ordering::SeqCst);
        self.supervisor.scale(workers);
    }

    /// Lets the load decide how many workers there are, from now on.
    pub fn scale_by(&self, sizing: Sizing) {
        self.shared.emptied.store(false, Ordering::SeqCst);
        self.supervisor.scale_by(sizing);
    }

    /// How much memory a call of each command leaves behind, the worst first, as far as can be told from how workers
    /// grow. Known where `max_rss` is set.
    pub fn growth(&self) -> Vec<CommandGrowth> {
        let report = self.shared.growth().report().into_iter();
        report
            .map(|(command, bytes_per_call, calls)| CommandGrowth { command, bytes_per_call, calls })
            .collect()
    }

    /// Replaces a worker by a new one, which gets ready first; says whether it was found.
    pub async fn recycle(&self, worker: &str) -> bool {
        self.supervisor.recycle(Some(worker.to_owned())).await > 0
    }

    /// Replaces all workers that serve, a few at a time; says how many.
    pub async fn recycle_all(&self) -> usize {
        self.supervisor.recycle(None).await
    }

    /// Replaces all workers by such with new code, or none: the pool never has fewer than it should, and if a new one does not
    /// start, its `health` hook objects, or it dies, the old ones serve on and the error says why. Those that are replaced are
    /// kept until all new ones have lived for a second, so there must be memory for twice as many.
    pub async fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.supervisor.reload(&self.shared, None).await
    }

    /// As [`Pool::reload`], with new settings.
    ///
    /// Those about calls (retry, quarantine, breaker) and sessions hold once all workers are new. What was gathered by then stays where it
    /// means something: the retry budget keeps what was saved and spent; calls in quarantine are judged anew by the deaths
    /// that are remembered; an open circuit stays open, no longer than the new `longest`, and a window of another length
    /// begins anew; sessions live on, and end when the new time has passed since their last visit, however many they are. A
    /// policy that is switched off forgets all.
    pub async fn reload_as(&self, pool: PoolOptions) -> Result<Reloaded, ReloadError> {
        if pool.name != *self.shared.name {
            return Err(ReloadError::OtherName { pool: self.name().to_owned(), other: pool.name });
        }
        self.supervisor.reload(&self.shared, Some(pool)).await
    }

    /// Until as many workers serve as were asked for, by the last [`Pool::scale`] if there was one.
    pub async fn await_ready(&self, timeout: Duration) -> Result<(), CallError> {
        let mut health = self.shared.health.subscribe();
        let ready = async {
            // Whoever was told anything before has done it when it answers.
            self.supervisor.roll().await;
            health
                .wait_for(|health| matches!(health, Health::Ready(_) | Health::Empty | Health::Stopped))
                .await
        };
        match tokio::time::timeout(timeout, ready).await {
            Ok(Ok(health)) if *health != Health::Stopped => Ok(()),
            Ok(_) => Err(CallError::Stopped),
            Err(_) => {
                let reason = match &*self.shared.health.borrow() {
                    Health::Short { reason, .. } | Health::Degraded { reason, .. } => {
                        NoWorkersReason::Failed(Arc::clone(reason))
                    }
                    Health::Starting | Health::Ready(_) | Health::Empty | Health::Stopped => {
                        NoWorkersReason::NotReady { after: timeout }
                    }
                };
                let degraded = self.shared.degraded();
                Err(CallError::NoWorkers { pool: self.shared.name.to_string(), reason, degraded })
            }
        }
    }

    /// Subscribes to what happens in this pool from now on: workers, reloads, circuits, quarantines, retries and moved sessions. The end of each call,
    /// stream and tool is told only to [subscribers of the process](crate::telemetry::subscribe), since it happens so often.
    pub fn events(&self) -> Subscription {
        self.shared.events.subscribe()
    }

    /// How its calls have ended so far.
    pub fn outcomes(&self) -> Outcomes {
        self.shared.outcomes()
    }

    /// The calls of which workers have died, and which are refused because of that.
    pub fn quarantine(&self) -> Vec<Suspect> {
        self.shared.suspects()
    }

    /// Forgets that workers have died of a call; says whether it was suspected.
    pub fn release(&self, fingerprint: Fingerprint) -> bool {
        self.shared.release_suspect(fingerprint)
    }

    /// The circuits of its breaker, if it has one.
    pub fn circuits(&self) -> CircuitTable {
        self.shared.circuits()
    }

    /// The commands that its workers serve.
    pub fn commands(&self) -> Vec<String> {
        self.shared.command_names()
    }

    /// The sessions.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.sessions.list()
    }

    /// Ends a session: its store is dropped, and the workers that have served it are told.
    pub fn end_session(&self, id: &str) -> bool {
        let ended = self.shared.sessions.end(id);
        if let Some(session) = &ended {
            let (pool, id) = (&self.shared.name, &session.id);
            emit_with(Level::Debug, || Event::SessionEnded {
                pool: Arc::clone(pool),
                session: Arc::clone(id),
            });
            tell_of_session_end(&self.shared, session);
        }
        ended.is_some()
    }

    /// Returns what a worker printed last, or `None` if no worker has this id.
    pub fn output(&self, worker: &str) -> Option<WorkerOutput> {
        let scheduler = self.shared.scheduler();
        let worker = scheduler.workers().find(|serving| serving.id.as_str() == worker)?;
        Some(worker.output.lines())
    }

    /// Where the workers are that are at this command, or at any, the one first that has been at it for longest.
    pub async fn stacks_at(&self, command: Option<&str>) -> Option<String> {
        let workers: Vec<_> = self.shared.scheduler().workers().cloned().collect();
        let since = |worker: &crate::worker::Worker| {
            let at_work = worker.handle.at_work().into_iter();
            at_work
                .filter(|call| command.is_none_or(|command| &*call.command == command))
                .map(|call| call.since)
                .min()
        };
        let mut busy: Vec<_> =
            workers.into_iter().filter_map(|worker| Some((since(&worker)?, worker))).collect();
        busy.sort_by_key(|(since, _)| *since);
        let stacks = busy.iter().map(|(since, worker)| async move {
            let stack = worker.handle.stacks().await?;
            Some(format!("worker {}, at it for {:?}:\n{stack}", worker.id, since.elapsed()))
        });
        let told: Vec<String> = futures_util::future::join_all(stacks).await.into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join("\n"))
    }

    /// How it stands with its workers, now and whenever that changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Whether any worker serves.
    pub fn has_worker(&self) -> bool {
        self.shared.scheduler().workers().next().is_some()
    }

    /// Whether a person debugs its worker: then it has one only while a call waits.
    pub fn is_debugged(&self) -> bool {
        self.shared.config().debug
    }

    /// Whether a worker of it has told all of its commands, as those with the SDK do.
    pub fn tells_its_commands(&self) -> bool {
        self.shared.scheduler().workers().any(|worker| !worker.handle.introduction().sdk.is_empty())
    }

    /// How many calls each worker does at the same time.
    pub fn concurrency(&self) -> usize {
        self.shared.config().concurrency
    }

    /// Which of its workers that fail count into the budget of restarts.
    pub fn counted_failures(&self) -> CountedFailures {
        self.shared.config().restarts.counted
    }

    /// Asks the workers' `health` hooks, each worker in turn.
    pub async fn check_health(&self) -> Vec<HealthAnswer> {
        let workers: Vec<_> = self.shared.scheduler().workers().cloned().collect();
        let mut answers = Vec::with_capacity(workers.len());
        for worker in workers {
            let (id, answer) = (worker.id.to_string(), self.shared.ask_health(&worker).await);
            answers.push(HealthAnswer { worker: id, answer });
        }
        answers
    }
}
