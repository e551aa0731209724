//! A handler over typed requests.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::engine::Engine;
use super::settle::{GiveUp, Outcome, Replies, Rules};
use super::window::Concurrency;
use super::{Control, IntoFailure, LoopError, RunOptions, Runnable};
use crate::mailbox::{DeadLetterPolicy, Mailbox, TypedMessage, body};

/// A loop that gives each message of a mailbox to a handler.
///
/// A handler's value is the reply, if the message names who waits for one; then, or without it, the message is acknowledged. If
/// the handler fails or panics, the [`DeadLetterPolicy`] says whether the message comes again or is given up. A body that
/// is no `T` is buried. No error ends the loop. A handler may take as long as it likes: its lease is extended meanwhile, and
/// [`beat`](super::beat) tells that it makes progress.
///
/// ```no_run
/// use std::sync::Arc;
/// use snakepit::loops::{Failure, MainLoop, RunOptions, Runnable};
/// use snakepit::mailbox::{MemoryMailbox, TypedMessage};
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let mailbox = Arc::new(MemoryMailbox::new("numbers"));
/// let squares = MainLoop::new("squares", mailbox, |request: TypedMessage<i64>| async move {
///     Ok::<_, Failure>(request.value * request.value)
/// });
/// squares.run(RunOptions::new()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MainLoop {
    engine: Engine,
}

impl MainLoop {
    /// Handles the messages of a mailbox, one at a time.
    pub fn new<T, R, E, Way, F, Fut>(name: impl Into<String>, mailbox: Arc<dyn Mailbox>, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: IntoFailure<Way>,
        F: Fn(TypedMessage<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let work = move |message: &crate::mailbox::Message| -> BoxFuture<'static, Outcome> {
            let (handler, message) = (Arc::clone(&handler), message.clone());
            Box::pin(async move {
                let value = match message.read::<T>() {
                    Ok(value) => value,
                    Err(error) => return Outcome::Undecodable(error.to_string()),
                };
                let asks = message.wants_reply();
                match handler(TypedMessage { value, message }).await {
                    Ok(_) if !asks => Outcome::Done(None),
                    Ok(value) => match body(&value) {
                        Ok(body) => Outcome::Done(Some(body)),
                        Err(error) => Outcome::Unanswerable(error.to_string()),
                    },
                    Err(error) => Outcome::Failed(error.into_failure()),
                }
            })
        };
        Self {
            engine: Engine {
                control: Control::new(name),
                mailbox,
                work: Arc::new(work),
                door: None,
                rules: Arc::default(),
                concurrency: Concurrency::Fixed(1),
                prefetch: 0,
            },
        }
    }

    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.engine.rules)
    }

    /// Handles up to so many messages at the same time; at least one.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.engine.concurrency = Concurrency::Fixed(messages.max(1));
        self
    }

    /// Receives up to so many more than it can handle; 0 unless it is set. They are leased meanwhile, and nobody else gets them.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.engine.prefetch = messages;
        self
    }

    /// What becomes of messages whose handling failed. A limit of deliveries is written to the mailbox's settings when the loop
    /// runs, for all who use the mailbox; without one the mailbox keeps the limit that it has.
    pub fn policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.rules().policy = policy;
        self
    }

    /// What is done with those that the policy gives up.
    pub fn give_up(mut self, give_up: GiveUp) -> Self {
        self.rules().give_up = give_up;
        self
    }

    /// Whether values are sent to those who wait for a reply.
    pub fn replies(mut self, replies: Replies) -> Self {
        self.rules().replies = replies;
        self
    }
}

impl Runnable for MainLoop {
    fn control(&self) -> &Control {
        &self.engine.control
    }

    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(self.engine.run(options))
    }
}
