//! A running pool, as its user holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{CommandGrowth, HealthAnswer, Outcomes, PoolHealth, PoolOptions};
use crate::call::{CallError, NoWorkersReason};
use crate::output::WorkerOutput;
use crate::queue::{CircuitTable, PoolInner, SessionInfo, Suspect};
use crate::request::{CallBuilder, MapBuilder, StreamBuilder};
use crate::sharded::ShardedArc;
use crate::supervisor::{ReloadError, Reloaded, SupervisorHandle, announce_session_end};
use crate::telemetry::{Event, Subscription};
use snakepit_policy::{CountedFailures, Fingerprint, Sizing};

/// A running pool. Cheap to clone.
///
/// ```no_run
/// use snakepit::{Snakepit, args, python};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = Snakepit::builder().pool(python("worker.py").name("math")).start().await?;
/// let pool = pit.pool("math").expect("it was just described");
/// let sum: i64 = pool.call("add", args! { a: 1, b: 2 }).await?;
/// pool.scale(8);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(crate) shared: Arc<PoolInner>,
    /// References for calls.
    pub(crate) refs: ShardedArc<PoolInner>,
    pub(crate) supervisor: SupervisorHandle,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.shared.name).finish()
    }
}

impl Pool {
    /// Returns the name of the pool.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Describes a call of a command. See `Snakepit::call`.
    ///
    /// ```no_run
    /// use snakepit::args;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let sum: i64 = pool.call("add", args! { a: 1, b: 2 }).await?;
    /// # Ok(()) }
    /// ```
    pub fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> CallBuilder<T> {
        CallBuilder::new(self.refs.own(), command, &args)
    }

    /// Describes a call that answers with many values. See `Snakepit::stream`.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    /// use snakepit::args;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut numbers = pool.stream::<i64>("count", args! { to: 3 }).open()?;
    /// let first = numbers.next().await.transpose()?;
    /// # Ok(()) }
    /// ```
    pub fn stream<T: DeserializeOwned>(&self, command: &str, args: impl Serialize) -> StreamBuilder<T> {
        StreamBuilder::new(self.refs.own(), command, &args)
    }

    /// Describes calls of one command over many inputs. See `Snakepit::map`.
    ///
    /// ```no_run
    /// use futures_util::TryStreamExt;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let squares: Vec<i64> = pool.map::<i64, _>("square", 0..1000).in_order()?.try_collect().await?;
    /// # Ok(()) }
    /// ```
    pub fn map<T, I>(&self, command: &str, inputs: I) -> MapBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize,
    {
        MapBuilder::new(self.refs.own(), command, inputs)
    }

    /// Sets the number of workers, which then no longer follows the load. Surplus workers finish their calls.
    ///
    /// With 0 workers, new calls fail at once with [`CallError::NoWorkers`]. Calls that already wait keep waiting.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// pool.scale(8);
    /// pool.await_ready(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub fn scale(&self, workers: usize) {
        self.shared.emptied.store(workers == 0, Ordering::SeqCst);
        self.supervisor.scale(workers);
    }

    /// Lets the number of workers follow the load from now on.
    ///
    /// ```no_run
    /// use snakepit::policy::Sizing;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// pool.scale_by(Sizing::between(2, 16));
    /// # Ok(()) }
    /// ```
    pub fn scale_by(&self, sizing: Sizing) {
        self.shared.emptied.store(false, Ordering::SeqCst);
        self.supervisor.scale_by(sizing);
    }

    /// Returns how much memory a call of each command leaves behind, the largest first, estimated from how workers
    /// grow. Known if `max_rss` is set.
    pub fn growth(&self) -> Vec<CommandGrowth> {
        let report = self.shared.growth().report().into_iter();
        report
            .map(|(command, bytes_per_call, calls)| CommandGrowth { command, bytes_per_call, calls })
            .collect()
    }

    /// Replaces a worker with a new one, which gets ready first. Returns whether the worker was found.
    ///
    /// ```no_run
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// for worker in pool.workers() {
    ///     println!("{} replaced: {}", worker.id, pool.recycle(&worker.id).await);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn recycle(&self, worker: &str) -> bool {
        self.supervisor.recycle(Some(worker.to_owned())).await > 0
    }

    /// Replaces all workers that serve, a few at a time. Returns how many.
    pub async fn recycle_all(&self) -> usize {
        self.supervisor.recycle(None).await
    }

    /// Replaces all workers with workers that have new code, or none of them. The pool never has fewer workers than it
    /// should. If a new worker does not start, dies, or fails its `health` hook, the old ones continue to serve and the
    /// error says why. The old workers are kept until all new ones have lived for a second, so there must be memory for
    /// twice as many.
    ///
    /// ```no_run
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let reloaded = pool.reload().await?;
    /// println!("{} workers run generation {}", reloaded.replaced, reloaded.generation);
    /// # Ok(()) }
    /// ```
    pub async fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.supervisor.reload(&self.shared, None).await
    }

    /// Like [`Pool::reload`], with new settings.
    ///
    /// The settings of calls (retry, quarantine, breaker) and sessions apply once all workers are new. What was
    /// recorded by then is kept where it still has a meaning. The retry budget keeps what was saved and spent. Calls in
    /// quarantine are judged again by the remembered deaths. An open circuit stays open, but no longer than the new
    /// `longest`, and a window of another length begins again. Sessions live on, however many they are, and end when
    /// the new time has passed since their last visit. A policy that is switched off forgets everything.
    ///
    /// ```no_run
    /// use snakepit::python;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// pool.reload_as(python("worker.py").name("math").workers(8)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn reload_as(&self, pool: PoolOptions) -> Result<Reloaded, ReloadError> {
        if pool.name != *self.shared.name {
            return Err(ReloadError::OtherName { pool: self.name().to_owned(), other: pool.name });
        }
        self.supervisor.reload(&self.shared, Some(pool)).await
    }

    /// Waits until as many workers serve as were asked for, by the last [`Pool::scale`] if there was one.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// pool.await_ready(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn await_ready(&self, timeout: Duration) -> Result<(), CallError> {
        let mut health = self.shared.health.subscribe();
        let ready = async {
            // The supervisor handles requests in order, so its answer means that all earlier requests are done.
            self.supervisor.worker_rows().await;
            health
                .wait_for(|health| {
                    matches!(health, PoolHealth::Ready(_) | PoolHealth::Empty | PoolHealth::Stopped)
                })
                .await
        };
        match tokio::time::timeout(timeout, ready).await {
            Ok(Ok(health)) if *health != PoolHealth::Stopped => Ok(()),
            Ok(_) => Err(CallError::Stopped),
            Err(_) => {
                let reason = match &*self.shared.health.borrow() {
                    PoolHealth::Stopped => return Err(CallError::Stopped),
                    PoolHealth::Short { reason, .. } | PoolHealth::Degraded { reason, .. } => {
                        NoWorkersReason::Failed(Arc::clone(reason))
                    }
                    PoolHealth::Starting | PoolHealth::Ready(_) | PoolHealth::Empty => {
                        NoWorkersReason::NotReady { after: timeout }
                    }
                };
                let degraded = self.shared.degraded();
                Err(CallError::NoWorkers { pool: self.shared.name.to_string(), reason, degraded })
            }
        }
    }

    /// Subscribes to the events of this pool from now on: workers, reloads, circuits, quarantines, retries and moved
    /// sessions. The end of each call, stream and tool is reported only to [subscribers of the
    /// process](crate::telemetry::subscribe), because it happens so often.
    ///
    /// ```no_run
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut events = pool.events();
    /// while let Some(event) = events.next().await {
    ///     println!("{} {:?}", event.name(), event.fields());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Subscription {
        self.shared.events.subscribe()
    }

    /// Returns how the calls of the pool have ended so far.
    pub fn outcomes(&self) -> Outcomes {
        self.shared.outcomes()
    }

    /// Returns the calls that workers have died of, whether or not they are rejected now.
    ///
    /// ```no_run
    /// # async fn example(pool: snakepit::Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// for suspect in pool.quarantine() {
    ///     pool.release(suspect.fingerprint);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn quarantine(&self) -> Vec<Suspect> {
        self.shared.suspects()
    }

    /// Forgets that workers have died of a call. Returns whether the call was suspected.
    pub fn release(&self, fingerprint: Fingerprint) -> bool {
        self.shared.release_suspect(fingerprint)
    }

    /// Returns the circuits of the breaker, if the pool has one.
    pub fn circuits(&self) -> CircuitTable {
        self.shared.circuits()
    }

    /// Returns the commands that the workers serve.
    pub fn commands(&self) -> Vec<String> {
        self.shared.command_names()
    }

    /// Returns the sessions.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.sessions.list()
    }

    /// Ends a session: drops its store, and tells the workers that have served it. Returns whether the session existed.
    pub fn end_session(&self, id: &str) -> bool {
        let ended = self.shared.sessions.end(id);
        if let Some(session) = &ended {
            announce_session_end(&self.shared, session, |pool, session| Event::SessionEnded {
                pool,
                session,
            });
        }
        ended.is_some()
    }

    /// Returns what a worker printed last, or `None` if no worker has this id.
    pub fn output(&self, worker: &str) -> Option<WorkerOutput> {
        let scheduler = self.shared.scheduler();
        let worker = scheduler.workers().find(|serving| serving.id.as_str() == worker)?;
        Some(worker.output.lines())
    }

    /// Returns the stacks of the workers that run this command, or any command if none is given. The worker that has
    /// run it for longest comes first.
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
        let shown: Vec<String> = futures_util::future::join_all(stacks).await.into_iter().flatten().collect();
        (!shown.is_empty()).then(|| shown.join("\n"))
    }

    /// Returns the state of the workers, now and whenever it changes.
    pub fn health(&self) -> watch::Receiver<PoolHealth> {
        self.shared.health.subscribe()
    }

    /// Reports whether the pool is in debug mode. It then has a worker only while a call waits.
    pub fn is_debugged(&self) -> bool {
        self.shared.config().debug
    }

    /// Reports whether a worker has announced all of its commands, as workers with the SDK do.
    pub fn tells_its_commands(&self) -> bool {
        self.shared.scheduler().workers().any(|worker| !worker.handle.introduction().sdk.is_empty())
    }

    /// Returns how many calls each worker does at the same time.
    pub fn concurrency(&self) -> usize {
        self.shared.config().concurrency
    }

    /// Returns which failed workers count against the budget of restarts.
    pub fn counted_failures(&self) -> CountedFailures {
        self.shared.config().restarts.counted
    }

    /// Calls the `health` hooks of the workers, one worker after the other.
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
