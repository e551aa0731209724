//! Mailboxes whose bodies have one type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::super::{
    DeadReason, Mailbox, MailboxError, Message, MessageId, ReceiveOptions, RequestOptions, SendOptions, body,
};

/// A mailbox whose bodies are JSON values of one type. A message whose body cannot be decoded is buried with the
/// reason; the other messages of the same receive are delivered.
///
/// ```
/// use snakepit::mailbox::{MemoryMailbox, ReceiveOptions, SendOptions, TypedMailbox};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders: TypedMailbox<Vec<String>> = TypedMailbox::new(MemoryMailbox::new("orders"));
/// orders.send(&vec!["coffee".to_owned(), "cake".to_owned()], SendOptions::new()).await?;
/// for order in orders.receive(ReceiveOptions::new()).await? {
///     println!("{}", order.value.join(" and "));
///     order.ack().await?;
/// }
/// # Ok(()) }
/// ```
pub struct TypedMailbox<T> {
    mailbox: Arc<dyn Mailbox>,
    bodies: PhantomData<fn(T) -> T>,
}

/// A message and its decoded body. Dereferences to the [`Message`], which still has the bytes.
///
/// ```
/// use snakepit::mailbox::{MemoryMailbox, ReceiveOptions, SendOptions, TypedMailbox};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let numbers: TypedMailbox<i64> = TypedMailbox::new(MemoryMailbox::new("numbers"));
/// # numbers.send(&7, SendOptions::new()).await?;
/// for message in numbers.receive(ReceiveOptions::new()).await? {
///     println!("{}, delivery {}", message.value * message.value, message.delivery_count);
///     message.ack().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TypedMessage<T> {
    /// The decoded body.
    pub value: T,
    /// The message.
    pub message: Message,
}

impl<T> TypedMessage<T> {
    /// Combines a message with its decoded body.
    pub fn new(value: T, message: Message) -> Self {
        Self { value, message }
    }
}

impl<T> Deref for TypedMessage<T> {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl<T> Clone for TypedMailbox<T> {
    fn clone(&self) -> Self {
        Self { mailbox: Arc::clone(&self.mailbox), bodies: PhantomData }
    }
}

impl<T> fmt::Debug for TypedMailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedMailbox").field(&self.mailbox).finish()
    }
}

impl<T: Serialize + DeserializeOwned> TypedMailbox<T> {
    /// Wraps a mailbox to encode and decode its bodies.
    pub fn new(mailbox: impl Mailbox + 'static) -> Self {
        Self::over(Arc::new(mailbox))
    }

    /// Wraps a shared mailbox.
    pub fn over(mailbox: Arc<dyn Mailbox>) -> Self {
        Self { mailbox, bodies: PhantomData }
    }

    /// Returns the underlying mailbox, for operations that do not involve bodies.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.mailbox
    }

    /// Sends a value.
    pub async fn send(&self, value: &T, options: SendOptions) -> Result<MessageId, MailboxError> {
        self.mailbox.send(body(value)?, options).await
    }

    /// Sends a value and waits for the reply. A reply that reports an error is [`MailboxError::ErrorReply`].
    pub async fn request<R: DeserializeOwned>(
        &self,
        value: &T,
        options: RequestOptions,
    ) -> Result<R, MailboxError> {
        self.mailbox.request(body(value)?, options).await?.read()
    }

    /// Leases messages, as [`Mailbox::receive`] does, and buries those whose bodies cannot be decoded. If none is left,
    /// receives again until the mailbox has no more messages and the wait is over.
    pub async fn receive(&self, options: ReceiveOptions) -> Result<Vec<TypedMessage<T>>, MailboxError> {
        let until = Instant::now() + options.wait;
        let mut left = options;
        loop {
            let messages = self.mailbox.receive(left).await?;
            let is_over = messages.is_empty();
            let mut readable = Vec::with_capacity(messages.len());
            let mut trouble = None;
            for message in messages {
                match message.read() {
                    Ok(value) => readable.push(TypedMessage { value, message }),
                    Err(error) => trouble = self.give_up(&message, &error).await.err().or(trouble),
                }
            }
            match trouble {
                // Readable messages matter more than the error: a message that could not be buried is delivered again
                // until its limit.
                Some(error) if readable.is_empty() => return Err(error),
                _ if is_over || !readable.is_empty() => return Ok(readable),
                _ => left.wait = until.saturating_duration_since(Instant::now()),
            }
        }
    }

    async fn give_up(&self, message: &Message, error: &MailboxError) -> Result<(), MailboxError> {
        let MailboxError::Body { reason, .. } = error else { return Ok(()) };
        match message.bury(DeadReason::Undecodable { error: reason.clone() }).await {
            // The lease has ended: the next receiver buries the message, or the message reaches its delivery limit.
            Err(MailboxError::ReceiptExpired) => Ok(()),
            done => done,
        }
    }
}
