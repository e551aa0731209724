//! Replies: what a requester gets, and how to ask for one.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::message::read_body;
use super::{ERROR_ATTRIBUTE, MAX_WAIT, Mailbox, MailboxError, MessageId, SendOptions};

/// How long the reply to a request is kept: the requester takes it much sooner.
const KEPT: Duration = Duration::from_mins(1);
/// The most words of an error that a person is shown.
const LONGEST_ERROR: usize = 2048;

/// The answer to a message that was sent with [`SendOptions::keep_result`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// Its own id.
    pub id: MessageId,
    /// The message that it answers.
    pub in_reply_to: MessageId,
    /// What was answered, byte for byte.
    pub body: Bytes,
    /// Its attributes, with those of its request.
    pub attributes: BTreeMap<String, String>,
    /// The W3C trace context of its request.
    pub trace: Option<String>,
    /// When it was answered, by the wall clock, for people.
    pub replied_at: SystemTime,
}

impl Reply {
    /// The reply that a backend keeps: `options` are those of the reply, with all that it has of its request
    /// ([`SendOptions::answering`]).
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

    /// Its body as a value; JSON, as [`body`](super::body) writes it. A reply that tells of an error is
    /// [`MailboxError::ErrorReply`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MailboxError> {
        if let Some(name) = self.error() {
            let reason: String = String::from_utf8_lossy(&self.body).chars().take(LONGEST_ERROR).collect();
            return Err(MailboxError::ErrorReply { name: name.to_owned(), reason });
        }
        read_body(&self.body)
    }

    /// The name of the error, if it tells of one.
    pub fn error(&self) -> Option<&str> {
        self.attributes.get(ERROR_ATTRIBUTE).map(String::as_str)
    }
}

/// How something is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestOptions {
    /// How the question is sent. Its reply is kept for a minute unless that says otherwise.
    pub send: SendOptions,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self { send: SendOptions::new(), timeout: Duration::from_secs(30) }
    }
}

impl RequestOptions {
    /// Waits for thirty seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits so long for the answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends the question so.
    pub fn send(mut self, options: SendOptions) -> Self {
        self.send = options;
        self
    }
}

/// Asks, and waits for the answer to exactly this question.
pub(super) async fn request<M: Mailbox + ?Sized>(
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
