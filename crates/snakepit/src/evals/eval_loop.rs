//! A loop that evaluates the samples of a mailbox and replies with their records.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};

use super::asking::Asker;
use super::{EvalError, Evaluator, Experiment, Responder, Sample};
use crate::Snakepit;
use crate::loops::{Control, Failure, LoopError, MainLoop, RunOptions, Runnable};
use crate::mailbox::{DeadLetterPolicy, Mailbox, TypedMessage};

/// A sample of an experiment, as it travels. The reply is a [`Record`](super::Record).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EvalRequest {
    /// Who is asked, and how.
    pub experiment: Experiment,
    /// What is asked.
    pub sample: Sample,
}

/// The name of the error of a request whose result nobody would get.
const NO_REPLY: &str = "NoReplyTo";

/// A loop that evaluates the samples of a mailbox and replies with their records.
///
/// Errors and timeouts of a sample are records, and replied, too. What says nothing about the sample (a pool that is gone) fails
/// the request, which then comes again or is given up, as the policy says. A request that names nobody to reply to is buried: its
/// result would be lost.
#[derive(Debug)]
pub struct EvalLoop {
    inner: MainLoop,
}

impl EvalLoop {
    /// Asks a pool, one sample at a time.
    pub fn new(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        pit: &Snakepit,
        evaluator: Evaluator,
    ) -> Self {
        Self::of_pool(name, mailbox, pit, evaluator, None)
    }

    /// The same, where one answer, and one judgement, may take only so long.
    pub fn with_timeout(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        pit: &Snakepit,
        evaluator: Evaluator,
        timeout: Duration,
    ) -> Self {
        Self::of_pool(name, mailbox, pit, evaluator, Some(timeout))
    }

    fn of_pool(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        pit: &Snakepit,
        evaluator: Evaluator,
        timeout: Option<Duration>,
    ) -> Self {
        let asker = Asker::of_pool(pit, Arc::new(evaluator), timeout);
        let evals = Self::build(name, mailbox, asker);
        let pit = pit.clone();
        evals.inner.control().tell_stacks(move || {
            let pit = pit.clone();
            Box::pin(async move { stacks_of(&pit).await })
        });
        evals
    }

    /// Asks whoever answers, one sample at a time: a pool, the handler of a [`MainLoop`], or any async function.
    pub fn over(
        name: impl Into<String>,
        mailbox: Arc<dyn Mailbox>,
        responder: &Responder,
        evaluator: Evaluator,
    ) -> Result<Self, EvalError> {
        Ok(Self::build(name, mailbox, Asker::new(responder, Arc::new(evaluator), None)?))
    }

    fn build(name: impl Into<String>, mailbox: Arc<dyn Mailbox>, asker: Asker) -> Self {
        let handler = move |request: TypedMessage<EvalRequest>| {
            let asker = asker.clone();
            async move {
                if request.reply_to.is_none() {
                    return Err(Failure::new(NO_REPLY, "the request names no mailbox for its result"));
                }
                let EvalRequest { experiment, sample } = &request.value;
                asker.ask(experiment, sample).await.map_err(Failure::from)
            }
        };
        Self { inner: MainLoop::new(name, mailbox, handler) }.policy(DeadLetterPolicy::new())
    }

    /// Evaluates up to so many samples at the same time; at least one.
    pub fn concurrency(mut self, samples: usize) -> Self {
        self.inner = self.inner.concurrency(samples);
        self
    }

    /// What becomes of requests that could not be made.
    pub fn policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.inner = self.inner.policy(policy.include(NO_REPLY));
        self
    }
}

/// Where the workers are that answer or judge.
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
