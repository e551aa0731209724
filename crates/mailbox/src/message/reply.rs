//! Replies to messages, and the options of a request.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::super::{ERROR_ATTRIBUTE, MAX_WAIT, Mailbox, MailboxError, MessageId, SendOptions};
use super::read_body;
use snakepit_settings::setters;

/// How long the reply to a request is kept. The requester normally reads it much sooner.
const KEPT: Duration = Duration::from_mins(1);
/// The maximum number of characters of an error reply that are shown.
const LONGEST_ERROR: usize = 2048;

/// The reply to a message that was sent with [`SendOptions::keep_result`].
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, SendOptions, body};
/// # use snakepit::mailbox::ReceiveOptions;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("numbers");
/// let options = SendOptions::new().keep_result(Duration::from_hours(1));
/// let id = mailbox.send(body(&7)?, options).await?;
/// # mailbox.receive(ReceiveOptions::new()).await?[0].reply(&49).await?;
/// // Later, perhaps in another process:
/// if let Some(reply) = mailbox.result(id, Duration::from_secs(20)).await? {
///     let square: i64 = reply.read()?;
///     assert_eq!(square, 49);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The id of the reply.
    pub id: MessageId,
    /// The id of the message that it answers.
    pub in_reply_to: MessageId,
    /// The bytes of the reply, unchanged.
    pub body: Bytes,
    /// The attributes of the reply and of its request.
    pub attributes: BTreeMap<String, String>,
    /// The W3C trace context of the request.
    pub trace: Option<String>,
    /// The time of the reply by the wall clock, for display only.
    pub replied_at: SystemTime,
}

impl Reply {
    /// Creates the reply that a backend keeps. `options` are the reply's options with the values of its request filled
    /// in ([`SendOptions::answering`]).
    pub fn new(
        id: MessageId,
        in_reply_to: MessageId,
        body: impl Into<Bytes>,
        options: SendOptions,
        replied_at: SystemTime,
    ) -> Self {
        let SendOptions { attributes, trace, .. } = options;
        Self { id, in_reply_to, body: body.into(), attributes, trace, replied_at }
    }

    /// Decodes the body from JSON, the format that [`body`](super::super::body) writes. A reply that reports an error becomes
    /// [`MailboxError::ErrorReply`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MailboxError> {
        if let Some(name) = self.error() {
            let reason: String = String::from_utf8_lossy(&self.body).chars().take(LONGEST_ERROR).collect();
            return Err(MailboxError::ErrorReply { name: name.to_owned(), reason });
        }
        read_body(&self.body)
    }

    /// Returns the name of the error if the reply reports one.
    pub fn error(&self) -> Option<&str> {
        self.attributes.get(ERROR_ATTRIBUTE).map(String::as_str)
    }
}

/// The options of a request.
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MailboxError, RequestOptions, SendOptions, body};
///
/// # async fn example(mailbox: &dyn Mailbox) -> Result<(), MailboxError> {
/// let options = RequestOptions::new().timeout(Duration::from_mins(2)).send(SendOptions::new().priority(5));
/// match mailbox.request(body(&7)?, options).await {
///     Ok(reply) => println!("{}", reply.read::<i64>()?),
///     Err(MailboxError::NoReply { id, .. }) => println!("the answer to {id} may come later"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestOptions {
    /// The options of the request's message. The reply is kept for a minute by default.
    pub send: SendOptions,
    /// How long to wait for the reply.
    pub timeout: Duration,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self { send: SendOptions::new(), timeout: Duration::from_secs(30) }
    }
}

impl RequestOptions {
    /// Creates options with a timeout of thirty seconds.
    pub fn new() -> Self {
        Self::default()
    }
}

setters! {
    impl RequestOptions;

    /// Waits this long for the reply.
    timeout(timeout: Duration) = timeout;

    /// Sends the request's message with these options.
    send(options: SendOptions) = options;
}

/// Sends a request and waits for its reply.
pub(crate) async fn request<M: Mailbox + ?Sized>(
    mailbox: &M,
    body: Vec<u8>,
    options: RequestOptions,
) -> Result<Reply, MailboxError> {
    let RequestOptions { mut send, timeout } = options;
    send.keep_result.get_or_insert(KEPT);
    let began = Instant::now();
    let id = mailbox.send(body, send).await?;
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        if let Some(reply) = mailbox.result(id, left.min(MAX_WAIT)).await? {
            return Ok(reply);
        }
        if began.elapsed() >= timeout {
            return Err(MailboxError::NoReply { id, waited: timeout });
        }
    }
}
