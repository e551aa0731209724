//! Calls to the pools that answer and judge: what is asked again, and what ends the evaluation.
//!
//! What a sample does to its worker is that sample's result. What others do to the worker is not: the sample is asked again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::{Instant, sleep_until};

use super::SampleFailure;
use super::answer_json::to_json;
use crate::pool::{EMPTY, Pool};
use crate::value::Args;
use crate::{CallError, Sample, SampleStage, Snakepit, Value};
use snakepit_core::CallBuilder;
use snakepit_policy::CountedFailures;

/// How long a sample waits for a worker at most.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_mins(10);

/// A pool whose workers no call has reached for this long is given up.
const NO_WORKER_TIMEOUT: Duration = Duration::from_mins(1);

/// The shortest pause before a call is made again for want of a worker, or because of a circuit breaker.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// A call waits for a worker for this part of its timeout, and is then queued again.
const QUEUE_PART_OF_TIMEOUT: u32 = 10;

/// Calls the pools of an engine.
#[derive(Clone)]
pub(crate) struct PoolCaller {
    pit: Snakepit,
    /// When a call last reached a worker.
    reached: Arc<Mutex<Instant>>,
}

/// What a pool is asked about a sample.
pub(crate) struct PoolQuestion<'a> {
    pub(crate) command: &'a str,
    pub(crate) pool: Option<&'a str>,
    pub(crate) stage: SampleStage,
    pub(crate) sample: &'a Sample,
    /// The experiment, if the call's metadata is to hold its name.
    pub(crate) experiment: Option<&'a str>,
    /// How long the worker may take; as the pool says unless it is set.
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

    /// Calls, and says how long the last call took.
    ///
    /// The timeout is for the worker alone. A worker that timed out stays busy until its cancel is done, and a sample that waits for it must not
    /// count as slow: so each wait is short, and is begun again. Calls that a circuit breaker refuses, or for which there is no worker at the
    /// moment, are made again, too. A call whose worker died beside other calls is made again alone, which shows whose fault the death was.
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
                Err(CallError::QueueTimeout { .. }) => Some(Duration::ZERO),
                Err(CallError::CircuitOpen { retry_in, .. }) => Some((*retry_in).max(SHORTEST_PAUSE)),
                Err(CallError::NoWorkers { reason, degraded, .. })
                    if self.gets_a_worker(question.pool, reason, degraded.is_some(), first) =>
                {
                    Some(SHORTEST_PAUSE)
                }
                Err(error) if error.worker_died() && !alone && self.shares_workers(question.pool) => {
                    alone = true;
                    Some(Duration::ZERO)
                }
                _ => None,
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

    /// Whether a call shares its worker with others.
    fn shares_workers(&self, pool: Option<&str>) -> bool {
        self.pool(pool).is_some_and(|pool| pool.concurrency() > 1)
    }

    /// Whether a pool without workers is worth waiting for. Workers that died of samples are replaced, however slowly; workers that do not even
    /// start are not.
    fn gets_a_worker(&self, pool: Option<&str>, reason: &str, is_degraded: bool, first: Instant) -> bool {
        let Some(pool) = self.pool(pool).filter(|_| reason != EMPTY) else { return false };
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
