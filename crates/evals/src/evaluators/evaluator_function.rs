//! The evaluators that are functions of the host.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value as Json;

use super::{Evaluator, IntoJudgement, Judgement};
use crate::loops::HandlerFailure;
use crate::responders::SampleFailure;
use crate::{Sample, SampleStage};

type JudgeFunction = dyn Fn(Sample, Json) -> BoxFuture<'static, Result<Judgement, String>> + Send + Sync;

/// An evaluator that is a function of the host. [`Evaluator::function`] and [`Evaluator::async_function`] create it.
#[derive(Clone)]
pub struct EvaluatorFunction {
    name: String,
    judge: Arc<JudgeFunction>,
}

impl fmt::Debug for EvaluatorFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EvaluatorFunction").field(&self.name).finish()
    }
}

impl Evaluator {
    /// Returns an evaluator that calls a function with the sample and the answer. An error, a panic and a score outside
    /// 0 to 1 are errors of the evaluator, not of the answer. Checkpoints identify the function by its name, so change
    /// the name when you change how the function judges.
    ///
    /// ```
    /// use snakepit::evals::Evaluator;
    ///
    /// let polite = Evaluator::function("polite", |_, answer| answer.as_str().is_some_and(|it| it.contains("please")));
    /// let close = Evaluator::function("close", |sample, answer| {
    ///     let (Some(wanted), Some(got)) = (sample.expected.as_f64(), answer.as_f64()) else {
    ///         return Err("both must be numbers");
    ///     };
    ///     Ok(1.0 / (1.0 + (wanted - got).abs()))
    /// });
    /// ```
    pub fn function<J: IntoJudgement>(
        name: impl Into<String>,
        judge: impl Fn(&Sample, &Json) -> J + Send + Sync + 'static,
    ) -> Self {
        Self::async_function(name, move |sample, answer| {
            std::future::ready(judge(&sample, &answer).into_judgement())
        })
    }

    /// Like [`Evaluator::function`], for a function that waits for a model, a service or a file.
    ///
    /// ```
    /// use snakepit::evals::{Evaluator, Judgement};
    ///
    /// let reviewed = Evaluator::async_function("reviewed", |sample, answer| async move {
    ///     tokio::task::yield_now().await;
    ///     Judgement::scored(if answer == sample.expected { 0.9 } else { 0.2 }).why("as the reviewer sees it")
    /// });
    /// ```
    pub fn async_function<J, F, Fut>(name: impl Into<String>, judge: F) -> Self
    where
        J: IntoJudgement,
        F: Fn(Sample, Json) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = J> + Send + 'static,
    {
        let judge = move |sample: Sample, answer: Json| -> BoxFuture<'static, Result<Judgement, String>> {
            let judging = judge(sample, answer);
            Box::pin(async move { judging.await.into_judgement() })
        };
        Self::Function(EvaluatorFunction { name: name.into(), judge: Arc::new(judge) })
    }
}

impl EvaluatorFunction {
    /// Returns the name that identifies the function in checkpoints.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn judge(
        &self,
        sample: &Sample,
        answer: &Json,
        timeout: Duration,
    ) -> Result<Judgement, SampleFailure> {
        let (judge, sample, answer) = (Arc::clone(&self.judge), sample.clone(), answer.clone());
        // A synchronous function judges in the first poll, inside `catch_unwind`.
        let judging = AssertUnwindSafe(async move { judge(sample, answer).await }).catch_unwind();
        match tokio::time::timeout(timeout, judging).await {
            Ok(Ok(judgement)) => judgement.map_err(|reason| {
                SampleFailure::error(SampleStage::Judge, format!("{}: {reason}", self.name))
            }),
            Ok(Err(panic)) => {
                let said = HandlerFailure::of_panic(&*panic).message;
                Err(SampleFailure::error(SampleStage::Judge, format!("{} panicked: {said}", self.name)))
            }
            Err(_) => {
                let message = format!("{} did not judge within {timeout:?}", self.name);
                Err(SampleFailure::timed_out(SampleStage::Judge, message))
            }
        }
    }
}
