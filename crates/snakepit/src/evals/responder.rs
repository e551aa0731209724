//! Who answers the samples of an evaluation: a pool, the handler of a loop, or any async function.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{EvalRequest, Experiment, Sample};
use crate::Snakepit;
use crate::loops::{Failure, MainLoop};
use crate::mailbox::{Mailbox as _, MemoryMailbox, Receive, Send, body};

/// How long one answer, and one judgement, of the host's own functions may take unless it is said.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

type Function = dyn Fn(EvalRequest) -> BoxFuture<'static, Result<Json, Failure>> + std::marker::Send + Sync;

/// Who answers the samples of an evaluation.
///
/// ```
/// use snakepit::evals::{EvalRequest, Responder};
/// use snakepit::loops::Failure;
///
/// let shout = Responder::function(|request: EvalRequest| async move {
///     let Some(text) = request.sample.input.as_str() else {
///         return Err(Failure::new("NotText", "only a text can be shouted"));
///     };
///     Ok(text.to_uppercase())
/// });
/// ```
#[derive(Clone)]
pub struct Responder {
    pub(super) who: Who,
    pub(super) judges: Option<Snakepit>,
    pub(super) timeout: Option<Duration>,
}

#[derive(Clone)]
pub(super) enum Who {
    Pool(Snakepit),
    Host(HostCode),
}

/// Code of the host that answers.
#[derive(Clone)]
pub(super) enum HostCode {
    MainLoop(Arc<MainLoop>),
    Function(Arc<Function>),
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match &self.who {
            Who::Pool(_) => "a pool",
            Who::Host(HostCode::MainLoop(_)) => "a loop",
            Who::Host(HostCode::Function(_)) => "a function",
        };
        f.debug_struct("Responder").field("who", &who).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Responder {
    /// The commands of an engine's pools, as each experiment names them. They judge, too, where the evaluator asks a pool.
    pub fn pool(pit: &Snakepit) -> Self {
        Self { who: Who::Pool(pit.clone()), judges: Some(pit.clone()), timeout: None }
    }

    /// The handler of a loop, whether or not the loop runs. It gets the sample's input as the body of a message, with the arguments
    /// of the experiment, and its value is the answer. A message that it cannot read, its failure and its panic are errors of the
    /// sample.
    pub fn main_loop(handler: Arc<MainLoop>) -> Self {
        Self { who: Who::Host(HostCode::MainLoop(handler)), judges: None, timeout: None }
    }

    /// An async function of the host. Its failure and its panic are errors of the sample.
    pub fn function<R, E, F, Fut>(answer: F) -> Self
    where
        R: Serialize,
        E: Into<Failure>,
        F: Fn(EvalRequest) -> Fut + std::marker::Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + std::marker::Send + 'static,
    {
        let function = move |request: EvalRequest| -> BoxFuture<'static, Result<Json, Failure>> {
            let answering = answer(request);
            Box::pin(async move {
                let value = answering.await.map_err(Into::into)?;
                serde_json::to_value(value)
                    .map_err(|error| Failure::new("Answer", format!("it cannot be written as JSON: {error}")))
            })
        };
        Self { who: Who::Host(HostCode::Function(Arc::new(function))), judges: None, timeout: None }
    }

    /// The engine whose pools judge, if the evaluator asks one.
    pub fn judges(mut self, pit: &Snakepit) -> Self {
        self.judges = Some(pit.clone());
        self
    }

    /// How long one answer, and one judgement, may take: unless it is said, as long as the pool allows, and five minutes for
    /// functions and handlers. An [`Evaluation`](super::Evaluation) goes by its plan, if that has a time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl HostCode {
    /// What it answers; its panic is a failure.
    pub(super) fn answer(
        &self,
        experiment: &Experiment,
        sample: &Sample,
    ) -> BoxFuture<'static, Result<Json, Failure>> {
        let answering = match self {
            Self::MainLoop(handler) => {
                let (handler, input) = (Arc::clone(handler), with_arguments(experiment, sample));
                handled(handler, input, experiment.name.clone(), sample.id.clone()).boxed()
            }
            Self::Function(function) => {
                let request = EvalRequest { experiment: experiment.clone(), sample: sample.clone() };
                let function = Arc::clone(function);
                async move { function(request).await }.boxed()
            }
        };
        let caught = AssertUnwindSafe(answering).catch_unwind();
        async move { caught.await.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic))) }.boxed()
    }
}

/// The sample travels through a mailbox of its own, so that a handler holds a message as any other: with a lease, and with
/// somebody who waits for the reply.
async fn handled(
    handler: Arc<MainLoop>,
    input: Json,
    experiment: String,
    sample: String,
) -> Result<Json, Failure> {
    let mailbox = MemoryMailbox::new("sample");
    let options =
        Send::new().reply_to("answer").attribute("experiment", experiment).attribute("sample", sample);
    mailbox.send(body(&input)?, options).await?;
    let received = mailbox.receive(Receive::new()).await?;
    let Some(message) = received.first() else {
        return Err(Failure::new("Delivery", "the sample's message was not delivered"));
    };
    let answer = handler.answer(message).await?;
    match answer {
        Some(answer) => Ok(serde_json::from_slice(&answer)?),
        None => Ok(Json::Null),
    }
}

/// The arguments of an experiment are added to those of the sample. An input that is no object becomes the argument `input`, if there
/// are others.
pub(super) fn with_arguments(experiment: &Experiment, sample: &Sample) -> Json {
    let added = &experiment.arguments;
    match &sample.input {
        Json::Object(object) => {
            let mut all: Map<String, Json> = object.clone();
            all.extend(added.iter().map(|(name, value)| (name.clone(), value.clone())));
            Json::Object(all)
        }
        input if added.is_empty() => input.clone(),
        input => {
            let mut all = added.clone();
            all.insert("input".into(), input.clone());
            Json::Object(all)
        }
    }
}
