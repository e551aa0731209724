//! The source of the answers: a pool, the handler of a loop, or an async function.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value as Json;

use super::PoolCaller;
use crate::loops::{HandlerFailure, MainLoop};
use crate::mailbox::{Mailbox as _, MemoryMailbox, ReceiveOptions, SendOptions, body};
use crate::{EvalRequest, Experiment, Sample, Snakepit};

/// The default timeout for an answer or a judgement of the host's own code.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

type AnswerFunction =
    dyn Fn(EvalRequest) -> BoxFuture<'static, Result<Json, HandlerFailure>> + std::marker::Send + Sync;

/// The source of the answers of an evaluation.
///
/// ```
/// use snakepit::evals::{EvalRequest, Responder};
/// use snakepit::loops::HandlerFailure;
///
/// let shout = Responder::function(|request: EvalRequest| async move {
///     let Some(text) = request.sample.input.as_str() else {
///         return Err(HandlerFailure::new("NotText", "only a text can be shouted"));
///     };
///     Ok(text.to_uppercase())
/// });
/// ```
#[derive(Clone)]
pub struct Responder {
    pub(crate) source: AnswerSource,
    /// The engine whose pools judge.
    pub(crate) judges: Option<PoolCaller>,
    pub(crate) timeout: Option<Duration>,
}

/// The kind of the source.
#[derive(Clone)]
pub(crate) enum AnswerSource {
    Pool(PoolCaller),
    Host(HostCode),
}

/// Code of the host that answers samples.
#[derive(Clone)]
pub(crate) enum HostCode {
    MainLoop(Arc<MainLoop>),
    Function(Arc<AnswerFunction>),
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            AnswerSource::Pool(_) => "a pool",
            AnswerSource::Host(HostCode::MainLoop(_)) => "a loop",
            AnswerSource::Host(HostCode::Function(_)) => "a function",
        };
        f.debug_struct("Responder")
            .field("source", &source)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Responder {
    /// Asks the commands of an engine's pools that the experiments name. The pools of the same engine judge, if the
    /// evaluator needs a pool.
    pub fn pool(pit: &Snakepit) -> Self {
        let caller = PoolCaller::new(pit);
        Self { source: AnswerSource::Pool(caller.clone()), judges: Some(caller), timeout: None }
    }

    /// Asks the handler of a loop, whether or not the loop runs. The body of the message is the sample's input with the
    /// arguments of the experiment, and the returned value is the answer. If the handler cannot read the message, fails
    /// or panics, that is an error of the sample.
    pub fn main_loop(handler: Arc<MainLoop>) -> Self {
        Self::host(HostCode::MainLoop(handler))
    }

    /// Asks an async function of the host. If the function fails or panics, that is an error of the sample.
    pub fn function<R, E, F, Fut>(answer: F) -> Self
    where
        R: Serialize,
        E: Into<HandlerFailure>,
        F: Fn(EvalRequest) -> Fut + std::marker::Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + std::marker::Send + 'static,
    {
        let function = move |request: EvalRequest| -> BoxFuture<'static, Result<Json, HandlerFailure>> {
            let answering = answer(request);
            Box::pin(async move {
                let value = answering.await.map_err(Into::into)?;
                serde_json::to_value(value).map_err(|error| {
                    HandlerFailure::new("Answer", format!("the answer cannot be written as JSON: {error}"))
                })
            })
        };
        Self::host(HostCode::Function(Arc::new(function)))
    }

    fn host(code: HostCode) -> Self {
        Self { source: AnswerSource::Host(code), judges: None, timeout: None }
    }

    /// Sets the engine whose pools judge, if the evaluator needs a pool.
    pub fn judges(mut self, pit: &Snakepit) -> Self {
        self.judges = Some(PoolCaller::new(pit));
        self
    }

    /// Sets how long an answer or a judgement may take. By default, a pool uses its own timeouts, and functions and
    /// handlers have five minutes. The timeout of an [`Evaluation`](crate::Evaluation)'s plan, if set, overrides this
    /// one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl HostCode {
    /// Returns the answer. A panic becomes a failure.
    pub(crate) fn answer(
        &self,
        experiment: &Experiment,
        sample: &Sample,
    ) -> BoxFuture<'static, Result<Json, HandlerFailure>> {
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
        async move { caught.await.unwrap_or_else(|panic| Err(HandlerFailure::of_panic(&*panic))) }.boxed()
    }
}

/// Passes the sample to the handler through a mailbox of its own, so that the handler gets an ordinary message with a
/// lease and a mailbox for the reply.
async fn handled(
    handler: Arc<MainLoop>,
    input: Json,
    experiment: String,
    sample: String,
) -> Result<Json, HandlerFailure> {
    let mailbox = MemoryMailbox::new("sample");
    let options =
        SendOptions::new().reply_to("answer").attribute("experiment", experiment).attribute("sample", sample);
    mailbox.send(body(&input)?, options).await?;
    let received = mailbox.receive(ReceiveOptions::new()).await?;
    let Some(message) = received.first() else {
        return Err(HandlerFailure::new("Delivery", "the sample's message was not delivered"));
    };
    Ok(match handler.answer(message).await? {
        Some(answer) => serde_json::from_slice(&answer)?,
        None => Json::Null,
    })
}

/// Returns the sample's input with the arguments of the experiment. If there are arguments, an input that is not an
/// object becomes the argument `input`.
pub(crate) fn with_arguments(experiment: &Experiment, sample: &Sample) -> Json {
    let mut all = match &sample.input {
        Json::Object(object) => object.clone(),
        input if experiment.arguments.is_empty() => return input.clone(),
        input => {
            let mut all = experiment.arguments.clone();
            all.insert("input".into(), input.clone());
            return Json::Object(all);
        }
    };
    all.extend(experiment.arguments.clone());
    Json::Object(all)
}
