//! Calls to the pools that answer and judge: what is asked again, and what ends the evaluation.
//!
//! What a sample does to its worker is that sample's result. What happens to it because of others is not: it is asked again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::{Instant, sleep_until};

use super::asking::Trouble;
use super::{Sample, Stage, answers};
use crate::pool::{EMPTY, PoolRef};
use crate::supervision::restarts::CountedFailures;
use crate::value::Args;
use crate::{CallBuilder, CallError, Snakepit, Value};

/// How long a sample waits for a worker at the most.
pub(super) const PATIENCE: Duration = Duration::from_mins(10);

/// For how long no call may have come to a worker before the pool is given up.
const NO_WORKER_PATIENCE: Duration = Duration::from_mins(1);

/// How long it waits at the least for a breaker that lets somebody else try, or for a worker.
const SHORTEST: Duration = Duration::from_millis(5);

/// Calls the pools of an engine.
#[derive(Clone)]
pub(super) struct Caller {
    pit: Snakepit,
    timeout: Option<Duration>,
    /// When a call last came to a worker.
    reached: Arc<Mutex<Instant>>,
}

/// One call, as often as it takes.
pub(super) struct Question<'a> {
    pub(super) command: &'a str,
    pub(super) pool: Option<&'a str>,
    pub(super) stage: Stage,
    pub(super) sample: &'a Sample,
    /// The experiment, if its name is to travel along.
    pub(super) experiment: Option<&'a str>,
}

impl Caller {
    pub(super) fn new(pit: &Snakepit, timeout: Option<Duration>) -> Self {
        Self { pit: pit.clone(), timeout, reached: Arc::new(Mutex::new(Instant::now())) }
    }

    fn make(&self, question: &Question<'_>, arguments: Args) -> CallBuilder<Value> {
        let mut call = self.pit.call::<Value>(question.command, arguments);
        call = call.metadata("sample", question.sample.id.as_str());
        if let Some(experiment) = question.experiment {
            call = call.metadata("experiment", experiment);
        }
        if let Some(pool) = question.pool {
            call = call.pool(pool);
        }
        if let Some(timeout) = self.timeout {
            let wait = timeout / 10;
            call = call.timeout(timeout + wait).queue_timeout(wait);
        }
        call
    }

    /// Calls, and says how long it took.
    ///
    /// The time that a plan gives is for the worker. One that timed out is busy for another while, until its cancel has come
    /// to an end, and whoever waits for it must not be taken for slow: so a wait is short, and is begun again. So is a call that a
    /// breaker refuses, one for which there is no worker at the moment, and one that was beside others when its worker died:
    /// that one is asked alone, and then it is known whose death it was.
    pub(super) async fn call(
        &self,
        question: &Question<'_>,
        arguments: impl Fn() -> Args,
    ) -> (Result<Json, Trouble>, Duration) {
        let first = Instant::now();
        let mut alone = false;
        loop {
            let mut call = self.make(question, arguments());
            if alone {
                call = call.alone();
            }
            let began = Instant::now();
            let answer = call.await;
            let took = began.elapsed();
            if answer.as_ref().err().is_none_or(has_come_to_a_worker) {
                *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            let pause = match &answer {
                Err(CallError::QueueTimeout { .. }) => Some(Duration::ZERO),
                // It is refused for what others did.
                Err(CallError::CircuitOpen { retry_in, .. }) => Some((*retry_in).max(SHORTEST)),
                Err(CallError::NoWorkers { reason, degraded, .. })
                    if self.gets_a_worker(question.pool, reason, degraded.is_some(), first) =>
                {
                    Some(SHORTEST)
                }
                Err(CallError::WorkerDied { .. }) if !alone && self.has_company(question.pool) => {
                    alone = true;
                    Some(Duration::ZERO)
                }
                _ => None,
            };
            let again_at = pause.map(|pause| Instant::now() + pause);
            if let Some(again_at) = again_at.filter(|again_at| *again_at < first + PATIENCE) {
                sleep_until(again_at).await;
                continue;
            }
            let (stage, timeout) = (question.stage, self.timeout);
            let answer = answer.map_err(|error| Trouble::call(stage, error, timeout));
            let answer = answer
                .and_then(|value| answers::to_json(&value).map_err(|reason| Trouble::error(stage, reason)));
            return (answer, took);
        }
    }

    fn pool(&self, name: Option<&str>) -> Option<&PoolRef> {
        match name {
            Some(name) => self.pit.pool(name),
            None => self.pit.pools().first(),
        }
    }

    /// Whether a call shares its worker with others.
    fn has_company(&self, pool: Option<&str>) -> bool {
        self.pool(pool).is_some_and(|pool| pool.shared.config().concurrency > 1)
    }

    /// Whether it is worth while to wait for a pool that has no worker. Those that died of samples are replaced, however slowly;
    /// workers that do not even start are not.
    fn gets_a_worker(&self, pool: Option<&str>, reason: &str, is_degraded: bool, first: Instant) -> bool {
        let Some(pool) = self.pool(pool).filter(|_| reason != EMPTY) else { return false };
        if is_degraded && pool.shared.config().restarts.counted == CountedFailures::BeforeFirstCall {
            return false;
        }
        let reached = *self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.max(first).elapsed() < NO_WORKER_PATIENCE
    }
}

fn has_come_to_a_worker(error: &CallError) -> bool {
    matches!(error, CallError::Remote(_) | CallError::WorkerDied { .. } | CallError::Timeout { .. })
}
