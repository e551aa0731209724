//! One sample from its question to its record: the command is called, its answer is judged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use tokio::time::{Instant, sleep_until};

use super::record::opened;
use super::{EvalError, Evaluator, Experiment, Outcome, Record, Sample, Stage};
use crate::causes::with_causes;
use crate::loops::failpoint::{Step, reach};
use crate::value::Args;
use crate::{CallBuilder, CallError, Snakepit, Value, args};

/// What is kept of an error: tracebacks can be long, and there may be many.
const LONGEST_MESSAGE: usize = 4_000;

/// How long a sample waits for a worker at the most.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long it waits at the least for a breaker that lets somebody else try.
const SHORTEST: Duration = Duration::from_millis(5);

/// Asks the pools of an engine, and judges.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) pit: Snakepit,
    pub(super) evaluator: Arc<Evaluator>,
    pub(super) timeout: Option<Duration>,
}

/// Why there is no score.
pub(super) enum Trouble {
    /// It is the sample's, and goes on record.
    Sample(Outcome),
    /// It would be the same for every sample: the evaluation ends, and can be resumed.
    Hopeless(Box<CallError>),
}

impl Trouble {
    pub(super) fn error(stage: Stage, message: impl Into<String>) -> Self {
        Self::Sample(Outcome::Error { stage, message: bounded(message.into()) })
    }

    fn call(stage: Stage, error: CallError, timeout: Option<Duration>) -> Self {
        match error {
            error if is_hopeless(&error) => Self::Hopeless(Box::new(error)),
            // Where the worker was differs from run to run, and the caller knows the time that it gave.
            CallError::Timeout { command, after, .. } => {
                let after = timeout.unwrap_or(after);
                let message = format!("{command} did not answer within {after:?}");
                Self::Sample(Outcome::TimedOut { stage, message })
            }
            // Its pid, its calls and its last lines differ from run to run, too. The log has them.
            CallError::WorkerDied { command, autopsy, .. } => {
                Self::error(stage, format!("the worker of {command} {}", autopsy.own_ending()))
            }
            // It is the death of the same sample in other experiments that it is refused for.
            CallError::Quarantined { command, autopsies, .. } if !autopsies.is_empty() => {
                let last = autopsies.last().map(|autopsy| autopsy.own_ending()).unwrap_or_default();
                Self::error(stage, format!("the worker of {command} {last}"))
            }
            CallError::QueueTimeout { command, .. } => {
                let message = format!("no worker was free for {command} within {PATIENCE:?}");
                Self::Sample(Outcome::TimedOut { stage, message })
            }
            error => Self::error(stage, with_causes(&error)),
        }
    }
}

/// Whether the error says nothing about the sample.
fn is_hopeless(error: &CallError) -> bool {
    match error {
        CallError::NoSuchPool { .. }
        | CallError::NoWorkers { .. }
        | CallError::Saturated { .. }
        | CallError::CircuitOpen { .. }
        | CallError::Cancelled
        | CallError::Stopped => true,
        CallError::Remote(error) => error.kind == "unknown_command",
        _ => false,
    }
}

impl Asker {
    /// What comes of one sample.
    pub(super) async fn ask(&self, experiment: &Experiment, sample: &Sample) -> Result<Record, EvalError> {
        reach(Step::Ask);
        let (answered, latency) = self.answer(experiment, sample).await;
        reach(Step::Answered);
        let mut record = Record {
            experiment: experiment.name.clone(),
            sample: sample.id.clone(),
            outcome: Outcome::Error { stage: Stage::Answer, message: String::new() },
            output: None,
            latency_ms: milliseconds(latency),
            tokens: None,
        };
        let judged = match answered {
            Ok(answer) => {
                let (output, tokens) = opened(answer);
                let judgement = self.evaluator.judge(sample, &output, self).await;
                (record.output, record.tokens) = (Some(output), tokens);
                judgement
            }
            Err(trouble) => Err(trouble),
        };
        reach(Step::Judged);
        record.outcome = match judged {
            Ok(it) => Outcome::Scored { score: it.score, passed: it.passed, why: it.why },
            Err(Trouble::Sample(outcome)) => outcome,
            Err(Trouble::Hopeless(source)) => {
                return Err(EvalError::Call { experiment: experiment.name.clone(), source });
            }
        };
        Ok(record)
    }

    async fn answer(&self, experiment: &Experiment, sample: &Sample) -> (Result<Json, Trouble>, Duration) {
        let call = || {
            self.pit
                .call::<Value>(&experiment.command, arguments(experiment, sample))
                .metadata("experiment", experiment.name.as_str())
                .metadata("sample", sample.id.as_str())
        };
        self.call(call, experiment.pool.as_deref(), Stage::Answer).await
    }

    /// What a judge says.
    pub(super) async fn ask_judge(
        &self,
        command: &str,
        pool: Option<&str>,
        sample: &Sample,
        output: &Json,
    ) -> Result<Json, Trouble> {
        let call = || {
            let arguments = args! { input: &sample.input, output: output, expected: &sample.expected };
            self.pit.call::<Value>(command, arguments).metadata("sample", sample.id.as_str())
        };
        self.call(call, pool, Stage::Judge).await.0
    }

    /// Calls, and says how long it took.
    ///
    /// The time that a plan gives is for the worker. One that timed out is busy for another while, until its cancel has come
    /// to an end, and whoever waits for it must not be taken for slow: so a wait is short, and is begun again. So is a call that a
    /// breaker refuses.
    async fn call(
        &self,
        make: impl Fn() -> CallBuilder<Value>,
        pool: Option<&str>,
        stage: Stage,
    ) -> (Result<Json, Trouble>, Duration) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut call = make();
            if let Some(pool) = pool {
                call = call.pool(pool);
            }
            if let Some(timeout) = self.timeout {
                let wait = timeout / 10;
                call = call.timeout(timeout + wait).queue_timeout(wait);
            }
            let began = Instant::now();
            let answer = call.await;
            let took = began.elapsed();
            let again_at = match &answer {
                Err(CallError::QueueTimeout { .. }) => Some(Instant::now()),
                // It is refused for what others did.
                Err(CallError::CircuitOpen { retry_in, .. }) => {
                    Some(Instant::now() + (*retry_in).max(SHORTEST))
                }
                _ => None,
            };
            if let Some(again_at) = again_at.filter(|again_at| *again_at < patience) {
                sleep_until(again_at).await;
                continue;
            }
            let answer = answer.map_err(|error| Trouble::call(stage, error, self.timeout));
            let answer = answer.and_then(|value| {
                let unwritable = |error| format!("the answer cannot be written as JSON: {error}");
                serde_json::to_value(&value).map_err(|error| Trouble::error(stage, unwritable(error)))
            });
            return (answer, took);
        }
    }
}

fn arguments(experiment: &Experiment, sample: &Sample) -> Args {
    let added = &experiment.arguments;
    match &sample.input {
        Json::Object(object) => {
            let mut all: Map<String, Json> = object.clone();
            all.extend(added.iter().map(|(name, value)| (name.clone(), value.clone())));
            Args::new(&all)
        }
        input if added.is_empty() => args![input],
        input => {
            let mut all = added.clone();
            all.insert("input".into(), input.clone());
            Args::new(&all)
        }
    }
}

fn bounded(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Rounded, so that a record reads well.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
