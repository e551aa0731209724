//! Mailboxes of one type of body.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    DeadReason, Mailbox, MailboxError, Message, MessageId, ReceiveOptions, RequestOptions, SendOptions, body,
};

/// A mailbox whose bodies are values of one type, as JSON. A body that cannot be read as one is buried with the reason, and
/// those that came with it are delivered.
pub struct TypedMailbox<T> {
    mailbox: Arc<dyn Mailbox>,
    bodies: PhantomData<fn(T) -> T>,
}

/// A message and what its body says. It derefs to the [`Message`], which still has the bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TypedMessage<T> {
    /// What its body says.
    pub value: T,
    /// The message.
    pub message: Message,
}

impl<T> TypedMessage<T> {
    /// A message, and what its body was decoded to.
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
    /// Reads and writes the bodies of a mailbox.
    pub fn new(mailbox: impl Mailbox + 'static) -> Self {
        Self::over(Arc::new(mailbox))
    }

    /// The same for one that others hold, too.
    pub fn over(mailbox: Arc<dyn Mailbox>) -> Self {
        Self { mailbox, bodies: PhantomData }
    }

    /// For all that has nothing to do with bodies.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.mailbox
    }

    /// Puts a value in.
    pub async fn send(&self, value: &T, options: SendOptions) -> Result<MessageId, MailboxError> {
        self.mailbox.send(body(value)?, options).await
    }

    /// Puts a value in and waits for the answer to it. An answer that tells of an error is [`MailboxError::ErrorReply`].
    pub async fn request<R: DeserializeOwned>(
        &self,
        value: &T,
        options: RequestOptions,
    ) -> Result<R, MailboxError> {
        self.mailbox.request(body(value)?, options).await?.read()
    }

    /// Leases messages, as [`Mailbox::receive`] does. Those whose bodies cannot be read are buried on the way; if that leaves
    /// none, it goes on for as long as there are messages, or as it was told to wait.
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
                // The others are worth more than the error: what could not be buried comes again, and ends at its limit.
                Some(error) if readable.is_empty() => return Err(error),
                _ if is_over || !readable.is_empty() => return Ok(readable),
                _ => left.wait = until.saturating_duration_since(Instant::now()),
            }
        }
    }

    async fn give_up(&self, message: &Message, error: &MailboxError) -> Result<(), MailboxError> {
        let MailboxError::Body { reason, .. } = error else { return Ok(()) };
        match message.bury(DeadReason::Undecodable { error: reason.clone() }).await {
            // Its lease is over already: the next receiver buries it, or it reaches its delivery limit.
            Err(MailboxError::ReceiptExpired) => Ok(()),
            done => done,
        }
    }
}
