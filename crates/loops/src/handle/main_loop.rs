//! A loop that passes messages to a handler in Rust.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mailbox::{DeadLetterPolicy, Mailbox, Message, TypedMessage, body};
use crate::receive::{Concurrency, MessageLoop};
use crate::settle::{HandlingOutcome, SettlementRules};
use crate::{Control, GiveUpAction, HandlerFailure, IntoFailure, LoopError, Replies, RunOptions, Runnable};

/// A loop that passes each message of a mailbox to a handler.
///
/// If the message asks for a reply, the value of the handler is sent. The message is acknowledged. If the handler fails
/// or panics, the [`DeadLetterPolicy`] decides whether the message is delivered again or given up. A body that is not a
/// `T` is buried. No error ends the loop. A handler may take any time: its lease is extended meanwhile, and
/// [`beat`](crate::beat) reports progress.
///
/// ```no_run
/// use std::sync::Arc;
/// use snakepit::loops::{HandlerFailure, MainLoop, RunOptions, Runnable};
/// use snakepit::mailbox::{MemoryMailbox, TypedMessage};
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let mailbox = Arc::new(MemoryMailbox::new("numbers"));
/// let squares = MainLoop::new("squares", mailbox, |request: TypedMessage<i64>| async move {
///     Ok::<_, HandlerFailure>(request.value * request.value)
/// });
/// squares.run(RunOptions::new()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MainLoop {
    inner: MessageLoop,
}

impl MainLoop {
    /// Returns a loop that handles the messages of a mailbox, one at a time.
    pub fn new<T, R, E, Way, F, Fut>(name: impl Into<String>, mailbox: Arc<dyn Mailbox>, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: IntoFailure<Way>,
        F: Fn(TypedMessage<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let work = move |message: &Message| -> BoxFuture<'static, HandlingOutcome> {
            let (handler, message) = (Arc::clone(&handler), message.clone());
            Box::pin(async move {
                let value = match message.read::<T>() {
                    Ok(value) => value,
                    Err(error) => return HandlingOutcome::undecodable(&error),
                };
                let wants_reply = message.wants_reply();
                match handler(TypedMessage::new(value, message)).await {
                    Ok(value) => HandlingOutcome::answered(wants_reply.then(|| body(&value))),
                    Err(error) => HandlingOutcome::Failed(error.into_failure()),
                }
            })
        };
        Self {
            inner: MessageLoop {
                control: Control::new(name),
                mailbox,
                work: Arc::new(work),
                gate: None,
                submitted: None,
                rules: Arc::default(),
                concurrency: Concurrency::Fixed(1),
                prefetch: 0,
            },
        }
    }

    fn rules(&mut self) -> &mut SettlementRules {
        Arc::make_mut(&mut self.inner.rules)
    }

    /// Sets how many messages are handled at the same time, at least one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use snakepit::loops::{HandlerFailure, MainLoop};
    /// use snakepit::mailbox::{MemoryMailbox, TypedMessage};
    ///
    /// # let mailbox = Arc::new(MemoryMailbox::new("urls"));
    /// # async fn fetch(url: TypedMessage<String>) -> Result<usize, HandlerFailure> { Ok(url.value.len()) }
    /// // The handler mostly waits for servers, so many of them run at a time.
    /// let fetches = MainLoop::new("fetches", mailbox, fetch).concurrency(32).prefetch(8);
    /// ```
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.inner.concurrency = Concurrency::Fixed(messages.max(1));
        self
    }

    /// Sets how many more messages the loop receives than it can handle. The default is 0. These messages are leased,
    /// so no other loop gets them.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.inner.prefetch = messages;
        self
    }

    /// Sets what happens to messages whose handling failed. A run writes the policy's delivery limit to the mailbox's
    /// settings, for all users of the mailbox. If the policy has no limit, the mailbox keeps its own.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use snakepit::loops::{HandlerFailure, MainLoop};
    /// use snakepit::mailbox::{DeadLetterPolicy, MemoryMailbox, TypedMessage};
    ///
    /// # let mailbox = Arc::new(MemoryMailbox::new("orders"));
    /// async fn handle(order: TypedMessage<String>) -> Result<(), HandlerFailure> {
    ///     if order.value.is_empty() {
    ///         return Err(HandlerFailure::new("Empty", "the order has no items"));
    ///     }
    ///     Ok(())
    /// }
    /// // Another delivery would not help an empty order. Other failures get ten.
    /// let policy = DeadLetterPolicy::new().include("Empty").max_deliveries(10);
    /// let orders = MainLoop::new("orders", mailbox, handle).policy(policy);
    /// ```
    pub fn policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.rules().policy = policy;
        self
    }

    /// Sets what happens to messages that the policy gives up.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use snakepit::loops::{GiveUpAction, HandlerFailure, MainLoop};
    /// use snakepit::mailbox::{MemoryMailbox, TypedMessage};
    ///
    /// # let mailbox = Arc::new(MemoryMailbox::new("numbers"));
    /// # async fn square(number: TypedMessage<i64>) -> Result<i64, HandlerFailure> { Ok(number.value * number.value) }
    /// // The requester learns of the failure and need not wait until its timeout.
    /// let squares = MainLoop::new("squares", mailbox, square).give_up(GiveUpAction::Reply);
    /// ```
    pub fn give_up(mut self, give_up: GiveUpAction) -> Self {
        self.rules().give_up = give_up;
        self
    }

    /// Sets whether the values of the handler are sent as replies.
    pub fn replies(mut self, replies: Replies) -> Self {
        self.rules().replies = replies;
        self
    }

    /// Returns the handler's reply to a message of another mailbox, if the message asks for one. The loop need not run.
    /// Neither the policy nor the concurrency applies.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use snakepit::loops::{HandlerFailure, MainLoop};
    /// use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions, TypedMessage, body};
    ///
    /// # async fn square(number: TypedMessage<i64>) -> Result<i64, HandlerFailure> { Ok(number.value * number.value) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A test asks the handler without running the loop.
    /// let mailbox = Arc::new(MemoryMailbox::new("numbers"));
    /// mailbox.send(body(&7)?, SendOptions::new().reply_to("answers")).await?;
    /// let message = &mailbox.receive(ReceiveOptions::new()).await?[0];
    /// let squares = MainLoop::new("squares", mailbox.clone(), square);
    /// assert_eq!(squares.answer(message).await.unwrap(), Some(b"49".to_vec()));
    /// # Ok(()) }
    /// ```
    pub async fn answer(&self, message: &Message) -> Result<Option<Vec<u8>>, HandlerFailure> {
        match (self.inner.work)(message).await {
            HandlingOutcome::Done(reply) => Ok(reply),
            HandlingOutcome::Failed(failure)
            | HandlingOutcome::Unanswerable(failure)
            | HandlingOutcome::Undecodable(failure)
            | HandlingOutcome::NotBegun { failure, .. } => Err(failure),
        }
    }
}

impl Runnable for MainLoop {
    fn control(&self) -> &Control {
        &self.inner.control
    }

    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(self.inner.run(options))
    }
}
