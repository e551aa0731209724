//! Answers and judges one sample.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::Instant;

use crate::loops::failpoint::{LoopFailpoint, reach};
use crate::record::opened;
use crate::responders::{
    AnswerSource, DEFAULT_TIMEOUT, PoolCaller, PoolQuestion, SampleFailure, bounded, with_arguments,
};
use crate::value::Args;
use crate::{EvalError, Evaluator, Experiment, Responder, Sample, SampleOutcome, SampleRecord, SampleStage};
use snakepit_protocol::args;

/// The code that answers and judges samples.
#[derive(Clone)]
pub(crate) struct SampleRunner {
    source: AnswerSource,
    /// The pools that judge, if the evaluator needs one.
    judges: Option<PoolCaller>,
    evaluator: Arc<Evaluator>,
    timeout: Option<Duration>,
}

impl SampleRunner {
    pub(super) fn new(responder: &Responder, evaluator: Arc<Evaluator>, timeout: Option<Duration>) -> Self {
        Self {
            source: responder.source.clone(),
            judges: responder.judges.clone(),
            evaluator,
            timeout: timeout.or(responder.timeout),
        }
    }

    /// Fails if the evaluator needs a pool and the responder has none.
    pub(super) fn check(responder: &Responder, evaluator: &Evaluator) -> Result<(), EvalError> {
        if evaluator.asks_a_pool() && responder.judges.is_none() {
            let reason =
                "it needs a pool, and the responder has none: add an engine with Responder::judges(&pit)"
                    .into();
            return Err(EvalError::Evaluator { what: evaluator.to_json().to_string(), reason });
        }
        Ok(())
    }

    /// Runs one sample and returns its record.
    pub(super) async fn run(
        &self,
        experiment: &Experiment,
        sample: &Sample,
    ) -> Result<SampleRecord, EvalError> {
        reach(LoopFailpoint::Ask);
        let (answered, latency) = self.answer(experiment, sample).await;
        reach(LoopFailpoint::Answered);
        let (mut output, mut tokens) = (None, None);
        let judged = match answered {
            Ok(answer) => {
                let (answer, cost) = opened(answer);
                let judgement = self.evaluator.judge(sample, &answer, self).await;
                (output, tokens) = (Some(answer), cost);
                judgement
            }
            Err(failure) => Err(failure),
        };
        reach(LoopFailpoint::Judged);
        let outcome = match judged {
            Ok(it) => SampleOutcome::Scored { score: it.score, passed: it.passed, why: it.why.map(bounded) },
            Err(SampleFailure::Recorded(outcome)) => outcome,
            Err(SampleFailure::Fatal(source)) => {
                return Err(EvalError::Call { experiment: experiment.name.clone(), source });
            }
        };
        Ok(SampleRecord {
            output,
            tokens,
            latency_ms: milliseconds(latency),
            ..SampleRecord::new(&experiment.name, &sample.id, outcome)
        })
    }

    async fn answer(
        &self,
        experiment: &Experiment,
        sample: &Sample,
    ) -> (Result<Json, SampleFailure>, Duration) {
        let code = match &self.source {
            AnswerSource::Pool(caller) => {
                let question = PoolQuestion {
                    command: &experiment.command,
                    pool: experiment.pool.as_deref(),
                    stage: SampleStage::Answer,
                    sample,
                    experiment: Some(&experiment.name),
                    timeout: self.timeout,
                };
                return caller.call(&question, || arguments(experiment, sample)).await;
            }
            AnswerSource::Host(code) => code,
        };
        let (began, timeout) = (Instant::now(), self.host_timeout());
        let answer = tokio::time::timeout(timeout, code.answer(experiment, sample)).await;
        let answer = if let Ok(answer) = answer {
            answer.map_err(|failure| SampleFailure::error(SampleStage::Answer, failure.to_string()))
        } else {
            let message = format!("there was no answer within {timeout:?}");
            Err(SampleFailure::timed_out(SampleStage::Answer, message))
        };
        (answer, began.elapsed())
    }

    /// Returns how long the host's own code may take.
    pub(crate) fn host_timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Asks a command of a pool to judge an answer.
    pub(crate) async fn ask_judge(
        &self,
        command: &str,
        pool: Option<&str>,
        sample: &Sample,
        arguments: impl Fn() -> Args,
    ) -> Result<Json, SampleFailure> {
        let Some(caller) = &self.judges else {
            return Err(SampleFailure::error(
                SampleStage::Judge,
                "the evaluator needs a pool, and the responder has none",
            ));
        };
        let (stage, timeout) = (SampleStage::Judge, self.timeout);
        let question = PoolQuestion { command, pool, stage, sample, experiment: None, timeout };
        caller.call(&question, arguments).await.0
    }
}

/// Returns the arguments of a call. An input that is an object holds arguments by name; any other input is the only
/// argument.
fn arguments(experiment: &Experiment, sample: &Sample) -> Args {
    match with_arguments(experiment, sample) {
        Json::Object(all) => Args::new(&all),
        input => args![input],
    }
}

/// Converts to milliseconds, rounded to microseconds, so that a record is readable.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
