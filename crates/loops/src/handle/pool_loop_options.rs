//! The options of a [`PoolLoop`](crate::PoolLoop), which a file can describe.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mailbox::DeadLetterPolicy;
use crate::{GiveUpAction, Replies};

/// The options of a [`PoolLoop`](crate::PoolLoop). Its messages are JSON: an object holds arguments by name, a list
/// holds arguments by position, and any other value is the only argument.
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
    /// The loop's name. By default it is made of the mailbox and the command.
    pub name: Option<String>,
    /// The pool. The default is the engine's first pool.
    pub pool: Option<String>,
    /// The command that handles messages.
    pub command: String,
    /// Whether the values of the command are sent as replies.
    #[serde(default)]
    pub reply: Replies,
    /// What happens to messages that are given up.
    #[serde(default)]
    pub give_up: GiveUpAction,
    /// How many calls are made at the same time. By default twice as many as the pool's workers take, or as many as
    /// they finish in 25 ms, if that is more.
    pub concurrency: Option<usize>,
    /// How many more messages are received than calls can be made, at least.
    #[serde(default)]
    pub prefetch: usize,
    /// Whether the call's metadata contains the message's id as `message`, so that the command recognizes a message
    /// that is delivered twice. A call with metadata is never batched with others.
    #[serde(default)]
    pub tell_id: bool,
    /// How long a call may take, in milliseconds. The default is that of the pool.
    pub call_timeout_ms: Option<u64>,
    /// The number of deliveries after which a message is given up. A run writes it to the mailbox's settings. If it is
    /// unset, those settings apply.
    pub max_deliveries: Option<u32>,
    /// How long a failed message waits before it is delivered again, in milliseconds. The wait doubles each time. The
    /// default is a second.
    pub backoff_ms: Option<u64>,
    /// The longest such wait, in milliseconds. The default is five minutes.
    pub longest_backoff_ms: Option<u64>,
    /// The names of errors that give a message up at once, in addition to those for wrong arguments.
    #[serde(default)]
    pub give_up_on: Vec<String>,
    /// How long messages are leased, in milliseconds. The default is that of the run. Leases are extended while the
    /// loop has the messages.
    pub visibility_timeout_ms: Option<u64>,
    /// How long one receive waits, in milliseconds. The default is that of the run.
    pub wait_ms: Option<u64>,
}

impl PoolLoopOptions {
    /// Returns options for a loop that calls this command of the engine's first pool.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), ..Self::default() }
    }

    /// Sets the loop's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the pool of the command.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// Sets how many calls are made at the same time.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// Sets how many more messages are received than calls can be made.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Puts the message's id into the call's metadata.
    pub fn tell_id(mut self) -> Self {
        self.tell_id = true;
        self
    }

    /// Sets what happens to messages that are given up.
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
