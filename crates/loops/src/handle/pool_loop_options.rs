//! The options of a [`PoolLoop`](crate::PoolLoop), which a file can describe.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mailbox::DeadLetterPolicy;
use crate::{GiveUpAction, Replies};

/// What a [`PoolLoop`](crate::PoolLoop) does. Its messages are JSON: an object holds arguments by name, a list arguments by position, and any
/// other value is the one argument.
///
/// ```
/// use snakepit::loops::PoolLoopOptions;
/// let options: PoolLoopOptions = serde_json::from_str(r#"{"command": "add", "concurrency": 8}"#).unwrap();
/// assert_eq!(options.command, "add");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolLoopOptions {
    /// The loop's name; made of the mailbox and the command unless it is set.
    pub name: Option<String>,
    /// The pool; the engine's first one unless it is set.
    pub pool: Option<String>,
    /// The command that handles messages.
    pub command: String,
    /// Whether the values of the command are sent as replies.
    #[serde(default)]
    pub reply: Replies,
    /// What is done with messages that are given up.
    #[serde(default)]
    pub give_up: GiveUpAction,
    /// How many calls are made at the same time. Unless it is set: twice what the pool's workers take, or what they do in 25 ms, if that is
    /// more.
    pub concurrency: Option<usize>,
    /// How many more messages are received than calls can be made, at least.
    #[serde(default)]
    pub prefetch: usize,
    /// Whether the call's metadata holds the message's id as `message`, so that the command recognizes a message that is delivered twice. A call
    /// with metadata is not gathered into a batch with others.
    #[serde(default)]
    pub tell_id: bool,
    /// How long a call may take, in milliseconds; as the pool says unless it is set.
    pub call_timeout_ms: Option<u64>,
    /// After how many deliveries a message is given up. A run writes it to the mailbox's settings, which hold unless it is set.
    pub max_deliveries: Option<u32>,
    /// How long a message that failed waits before it comes again, in milliseconds, doubled each time. A second unless it is set.
    pub backoff_ms: Option<u64>,
    /// The longest such wait, in milliseconds; five minutes unless it is set.
    pub longest_backoff_ms: Option<u64>,
    /// Names of errors that give a message up at once, besides those about wrong arguments.
    #[serde(default)]
    pub give_up_on: Vec<String>,
    /// How long messages are leased, in milliseconds; as the run says unless it is set. Leases are extended while the loop has the messages.
    pub visibility_timeout_ms: Option<u64>,
    /// How long one receive waits, in milliseconds; as the run says unless it is set.
    pub wait_ms: Option<u64>,
}

impl PoolLoopOptions {
    /// Calls this command of the engine's first pool.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), ..Self::default() }
    }

    /// Names the loop.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Calls the command of this pool.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// Makes this many calls at the same time.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// Receives this many more messages than calls can be made.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Puts the message's id into the call's metadata.
    pub fn tell_id(mut self) -> Self {
        self.tell_id = true;
        self
    }

    /// What is done with messages that are given up.
    pub fn give_up(mut self, give_up: GiveUpAction) -> Self {
        self.give_up = give_up;
        self
    }

    /// Gives a message up after this many deliveries.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    pub(super) fn policy(&self) -> DeadLetterPolicy {
        let mut policy = DeadLetterPolicy::default();
        policy.max_deliveries = self.max_deliveries;
        policy.include.extend(self.give_up_on.iter().cloned());
        let pause = |time: Option<u64>, usual| time.map_or(usual, Duration::from_millis);
        policy.backoff.first = pause(self.backoff_ms, policy.backoff.first);
        policy.backoff.longest =
            pause(self.longest_backoff_ms, policy.backoff.longest).max(policy.backoff.first);
        policy
    }
}
