//! A loop that evaluates the samples of a mailbox and replies with their records.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};

use super::SampleRunner;
use crate::loops::{Control, HandlerFailure, LoopError, MainLoop, RunOptions, Runnable};
use crate::mailbox::{DeadLetterPolicy, Mailbox, TypedMessage};
use crate::responders::AnswerSource;
use crate::{EvalError, Evaluator, Experiment, Responder, Sample, Snakepit};

/// A sample of an experiment, as it travels through a mailbox. The reply is a [`SampleRecord`](crate::SampleRecord).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EvalRequest {
    /// The experiment: the command and its arguments.
    pub experiment: Experiment,
    /// The sample.
    pub sample: Sample,
}

/// The name of the failure of a request without `reply_to`.
const NO_REPLY_TO: &str = "NoReplyTo";

/// A loop that evaluates the samples of a mailbox and replies with their records.
///
/// Errors and timeouts of a sample are records, and are sent as replies, too. An error that says nothing about the
/// sample (its pool is gone, for example) fails the request, and the policy decides whether the request is delivered
/// again or given up. A request without `reply_to` is buried, because its result would be lost.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use snakepit::evals::{EvalLoop, Evaluator};
/// use snakepit::loops::{RunOptions, Runnable};
/// use snakepit::mailbox::MemoryMailbox;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), Box<dyn std::error::Error>> {
/// let samples = Arc::new(MemoryMailbox::new("samples"));
/// let judge = EvalLoop::new("judge", samples, &pit, Evaluator::parse("exact")?).concurrency(4);
/// judge.run(RunOptions::new()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EvalLoop {
    inner: MainLoop,
}

impl EvalLoop {
    /// Returns a loop that asks a pool, one sample at a time.
    pub fn new(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        pit: &Snakepit,
        evaluator: Evaluator,
    ) -> Self {
        Self::build(name, mailbox, &Responder::pool(pit), evaluator)
    }

    /// Returns a loop that asks any responder, one sample at a time: a pool, the handler of a [`MainLoop`], or an async
    /// function.
    pub fn over(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        responder: &Responder,
        evaluator: Evaluator,
    ) -> Result<Self, EvalError> {
        SampleRunner::check(responder, &evaluator)?;
        Ok(Self::build(name, mailbox, responder, evaluator))
    }

    fn build(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        responder: &Responder,
        evaluator: Evaluator,
    ) -> Self {
        let runner = SampleRunner::new(responder, Arc::new(evaluator), None);
        let handler = move |request: TypedMessage<EvalRequest>| {
            let runner = runner.clone();
            async move {
                if request.reply_to.is_none() {
                    let reason = "the request names no mailbox for its result: send it with a reply_to";
                    return Err(HandlerFailure::new(NO_REPLY_TO, reason));
                }
                let EvalRequest { experiment, sample } = &request.value;
                runner.run(experiment, sample).await.map_err(HandlerFailure::from)
            }
        };
        let inner = MainLoop::new(name, mailbox, handler);
        if let AnswerSource::Pool(caller) = &responder.source {
            let pit = caller.engine().clone();
            inner.control().tell_stacks(move || {
                let pit = pit.clone();
                Box::pin(async move { stacks_of(&pit).await })
            });
        }
        Self { inner }.policy(DeadLetterPolicy::new())
    }

    /// Sets how many samples are evaluated at the same time, at least one.
    pub fn concurrency(mut self, samples: usize) -> Self {
        self.inner = self.inner.concurrency(samples);
        self
    }

    /// Sets what happens to failed requests.
    pub fn policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.inner = self.inner.policy(policy.include(NO_REPLY_TO));
        self
    }
}

/// Returns the stacks of the workers that answer or judge.
async fn stacks_of(pit: &Snakepit) -> Option<String> {
    let stacks = join_all(pit.pools().iter().map(|pool| pool.stacks_at(None))).await;
    let told: Vec<String> = stacks.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

impl Runnable for EvalLoop {
    fn control(&self) -> &Control {
        self.inner.control()
    }

    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        self.inner.run(options)
    }
}
