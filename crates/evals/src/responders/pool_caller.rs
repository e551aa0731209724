//! Calls to the pools that answer and judge: which calls are repeated, and which errors end the evaluation.
//!
//! The effect of a sample on its worker is the result of that sample. If other calls harm the worker, the sample is
//! asked again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::{Instant, sleep_until};

use super::SampleFailure;
use super::answer_json::to_json;
use crate::pool::Pool;
use crate::value::Args;
use crate::{CallError, Sample, SampleStage, Snakepit, Value};
use snakepit_core::CallBuilder;
use snakepit_policy::CountedFailures;

/// The longest time that a sample waits for a worker.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_mins(10);

/// The time after which a pool is given up if no call has reached its workers.
const NO_WORKER_TIMEOUT: Duration = Duration::from_mins(1);

/// The shortest pause before a call is repeated that no worker took.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// The part of its timeout that a call waits for a worker. Then it is queued again.
const QUEUE_PART_OF_TIMEOUT: u32 = 10;

/// The client of an engine's pools.
#[derive(Clone)]
pub(crate) struct PoolCaller {
    pit: Snakepit,
    /// When a call last reached a worker.
    reached: Arc<Mutex<Instant>>,
}

/// A question to a pool about a sample.
pub(crate) struct PoolQuestion<'a> {
    pub(crate) command: &'a str,
    pub(crate) pool: Option<&'a str>,
    pub(crate) stage: SampleStage,
    pub(crate) sample: &'a Sample,
    /// The experiment, if its name goes into the metadata of the call.
    pub(crate) experiment: Option<&'a str>,
    /// How long the worker may take. By default, the pool decides.
    pub(crate) timeout: Option<Duration>,
}

impl PoolCaller {
    pub(super) fn new(pit: &Snakepit) -> Self {
        Self { pit: pit.clone(), reached: Arc::new(Mutex::new(Instant::now())) }
    }

    pub(crate) fn engine(&self) -> &Snakepit {
        &self.pit
    }

    fn build(&self, question: &PoolQuestion<'_>, arguments: Args) -> CallBuilder<Value> {
        let mut call = self.pit.call::<Value>(question.command, arguments);
        call = call.metadata("sample", question.sample.id.as_str());
        if let Some(experiment) = question.experiment {
            call = call.metadata("experiment", experiment);
        }
        if let Some(pool) = question.pool {
            call = call.pool(pool);
        }
        if let Some(timeout) = question.timeout {
            let wait = timeout / QUEUE_PART_OF_TIMEOUT;
            call = call.timeout(timeout + wait).queue_timeout(wait);
        }
        call
    }

    /// Calls a pool. Returns the answer and the duration of the last call.
    ///
    /// The timeout applies to the worker alone. A worker that timed out stays busy until its cancel is done, and a
    /// sample that waits for it must not count as slow. So each wait is short and is repeated. Calls that a circuit
    /// breaker refuses, or for which there is no worker at the moment, are repeated, too. A call whose worker died
    /// while other calls were running on it is repeated alone, to find out which call caused the death.
    pub(crate) async fn call(
        &self,
        question: &PoolQuestion<'_>,
        arguments: impl Fn() -> Args,
    ) -> (Result<Json, SampleFailure>, Duration) {
        let first = Instant::now();
        let mut alone = false;
        loop {
            let began = Instant::now();
            let call = self.build(question, arguments());
            let answer = if alone { call.alone().await } else { call.await };
            let took = began.elapsed();
            if answer.as_ref().err().is_none_or(has_reached_a_worker) {
                *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            let pause = match &answer {
                Err(error) if error.worker_died() && !alone && self.shares_workers(question.pool) => {
                    alone = true;
                    Some(Duration::ZERO)
                }
                Err(error) => self.retry_pause(question.pool, error, first),
                Ok(_) => None,
            };
            let again_at = pause.map(|pause| Instant::now() + pause);
            if let Some(again_at) = again_at.filter(|again_at| *again_at < first + WORKER_TIMEOUT) {
                sleep_until(again_at).await;
                continue;
            }
            let stage = question.stage;
            let answer = match answer {
                Ok(value) => to_json(&value).map_err(|reason| SampleFailure::error(stage, reason)),
                Err(error) => Err(SampleFailure::of_call(stage, error, question.timeout)),
            };
            return (answer, took);
        }
    }

    fn pool(&self, name: Option<&str>) -> Option<&Pool> {
        match name {
            Some(name) => self.pit.pool(name),
            None => self.pit.pools().first(),
        }
    }

    /// Reports whether a call shares its worker with other calls.
    fn shares_workers(&self, pool: Option<&str>) -> bool {
        self.pool(pool).is_some_and(|pool| pool.concurrency() > 1)
    }

    /// Returns the pause after which a call that was not started is worth making again.
    fn retry_pause(&self, pool: Option<&str>, error: &CallError, first: Instant) -> Option<Duration> {
        let after = error.retry_after()?;
        let is_hopeless = match error {
            // A queue is full because the evaluation asks more at the same time than it takes, and would do so again.
            CallError::Saturated { .. } => true,
            CallError::NoWorkers { degraded, .. } => !self.gets_a_worker(pool, degraded.is_some(), first),
            _ => false,
        };
        (!is_hopeless).then(|| after.max(SHORTEST_PAUSE))
    }

    /// Reports whether a pool without workers is worth waiting for. The pool replaces workers that died of samples,
    /// however slowly, but a pool whose workers do not even start stays empty.
    fn gets_a_worker(&self, pool: Option<&str>, is_degraded: bool, first: Instant) -> bool {
        let Some(pool) = self.pool(pool) else { return false };
        if is_degraded && pool.counted_failures() == CountedFailures::BeforeFirstCall {
            return false;
        }
        let reached = *self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.max(first).elapsed() < NO_WORKER_TIMEOUT
    }
}

fn has_reached_a_worker(error: &CallError) -> bool {
    error.remote().is_some() || error.was_started()
}
