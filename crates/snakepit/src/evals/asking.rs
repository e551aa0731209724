//! One sample from its question to its record: somebody answers, and the answer is judged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::Instant;

use super::calling::{Caller, PATIENCE, Question};
use super::record::opened;
use super::responder::{DEFAULT_TIMEOUT, HostCode, Who, with_arguments};
use super::{EvalError, Evaluator, Experiment, Outcome, Record, Responder, Sample, Stage};
use crate::causes::with_causes;
use crate::loops::Failure;
use crate::loops::failpoint::{Step, reach};
use crate::value::Args;
use crate::{CallError, Snakepit, args};

/// What is kept of an error: tracebacks can be long, and there may be many.
const LONGEST_MESSAGE: usize = 4_000;

/// Asks whoever answers, and judges.
#[derive(Clone)]
pub(super) struct Asker {
    who: Asked,
    /// For judges of a pool.
    judges: Option<Caller>,
    evaluator: Arc<Evaluator>,
    timeout: Option<Duration>,
}

#[derive(Clone)]
enum Asked {
    Pool(Caller),
    Host(HostCode),
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

    pub(super) fn call(stage: Stage, error: CallError, timeout: Option<Duration>) -> Self {
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
    /// An evaluator that asks a pool needs one.
    pub(super) fn new(
        responder: &Responder,
        evaluator: Arc<Evaluator>,
        timeout: Option<Duration>,
    ) -> Result<Self, EvalError> {
        if evaluator.asks_a_pool() && responder.judges.is_none() {
            let reason =
                "a pool judges, and there is none: name its engine with Responder::judges(&pit)".into();
            return Err(EvalError::Evaluator { what: evaluator.to_json().to_string(), reason });
        }
        let timeout = timeout.or(responder.timeout);
        let who = match &responder.who {
            Who::Pool(pit) => Asked::Pool(Caller::new(pit, timeout)),
            Who::Host(code) => Asked::Host(code.clone()),
        };
        let judges = responder.judges.as_ref().map(|pit| Caller::new(pit, timeout));
        Ok(Self { who, judges, evaluator, timeout })
    }

    /// Asks a pool, which judges, too.
    pub(super) fn of_pool(pit: &Snakepit, evaluator: Arc<Evaluator>, timeout: Option<Duration>) -> Self {
        let caller = Caller::new(pit, timeout);
        Self { who: Asked::Pool(caller.clone()), judges: Some(caller), evaluator, timeout }
    }

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
            Ok(it) => Outcome::Scored { score: it.score, passed: it.passed, why: it.why.map(bounded) },
            Err(Trouble::Sample(outcome)) => outcome,
            Err(Trouble::Hopeless(source)) => {
                return Err(EvalError::Call { experiment: experiment.name.clone(), source });
            }
        };
        Ok(record)
    }

    async fn answer(&self, experiment: &Experiment, sample: &Sample) -> (Result<Json, Trouble>, Duration) {
        let code = match &self.who {
            Asked::Pool(caller) => {
                let question = Question {
                    command: &experiment.command,
                    pool: experiment.pool.as_deref(),
                    stage: Stage::Answer,
                    sample,
                    experiment: Some(&experiment.name),
                };
                return caller.call(&question, || arguments(experiment, sample)).await;
            }
            Asked::Host(code) => code,
        };
        let (began, limit) = (Instant::now(), self.limit());
        let late = |_| {
            let message = format!("there was no answer within {limit:?}");
            Err(Trouble::Sample(Outcome::TimedOut { stage: Stage::Answer, message }))
        };
        let failed = |failure: Failure| Trouble::error(Stage::Answer, failure.to_string());
        let answer = tokio::time::timeout(limit, code.answer(experiment, sample)).await;
        (answer.map_or_else(late, |answer| answer.map_err(failed)), began.elapsed())
    }

    /// How long the host's own code may take.
    pub(super) fn limit(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// What a command of a pool says of an answer.
    pub(super) async fn ask_judge(
        &self,
        command: &str,
        pool: Option<&str>,
        sample: &Sample,
        arguments: impl Fn() -> Args,
    ) -> Result<Json, Trouble> {
        let Some(caller) = &self.judges else {
            return Err(Trouble::error(Stage::Judge, "a pool judges, and there is none"));
        };
        let question = Question { command, pool, stage: Stage::Judge, sample, experiment: None };
        caller.call(&question, arguments).await.0
    }
}

/// An input that is an object is arguments by name, any other is the one argument.
fn arguments(experiment: &Experiment, sample: &Sample) -> Args {
    match with_arguments(experiment, sample) {
        Json::Object(all) => Args::new(&all),
        input => args![input],
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
