//! The options of a [`PoolLoop`](crate::PoolLoop), which a file can describe.

use std::time::Duration;

#[cfg(feature = "config")]
use std::num::{NonZeroU32, NonZeroUsize};

#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::{setters, settings};

use crate::mailbox::DeadLetterPolicy;
use crate::{GiveUpAction, Replies};

settings! {
    /// The options of a [`PoolLoop`](crate::PoolLoop). Its messages are JSON: an object holds arguments by name, a list
    /// holds arguments by position, and any other value is the only argument.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::loops::PoolLoopOptions;
    ///
    /// let options = PoolLoopOptions::new("add").concurrency(8).call_timeout(Duration::from_secs(30));
    /// assert_eq!(options.command, "add");
    /// ```
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct PoolLoopOptions {
        /// The command that is called with each message. Example: `command = "answer"`.
        @manual command: String = String::new(),
        /// The pool of the command. Unset: the first pool. Example: `pool = "example"`.
        @manual pool: Option<String> = None,
        /// When values are sent as replies: `"when_asked"`, if the sender waits for a reply, or `"never"`.
        reply: Replies = Replies::default(),
        /// What happens to a message that is given up: `"bury"`, or `"reply"` with the error if the sender waits for a
        /// reply.
        give_up: GiveUpAction = GiveUpAction::default(),
        /// How many calls are made at the same time. Unset: twice as many as the pool's workers take, or as many as
        /// finish in 25 ms if that is more. Example: `concurrency = 8`.
        @into concurrency: Option<usize> as Option<NonZeroUsize> = None,
        /// The least number of messages that are received in advance, beyond the calls that can be made.
        prefetch: usize = 0,
        /// Whether the command finds the message's id in `snakepit.context().metadata["message"]`. Such calls are not
        /// gathered into batches.
        @manual tell_id: bool = false,
        /// The time limit of a call. Unset: that of the pool. Example: `call_timeout = "30s"`.
        @into call_timeout: Option<Duration> as Option<HumanTime> = None,
        /// The number of deliveries after which a message is given up. It is written to the mailbox and applies to all
        /// its users. Unset: that of the mailbox. Example: `max_deliveries = 5`.
        @into max_deliveries: Option<u32> as Option<NonZeroU32> = None,
        /// How long a message that failed waits before it is delivered again. The pause doubles each time. Unset: one
        /// second. Example: `backoff = "1s"`.
        @into backoff: Option<Duration> as Option<HumanTime> = None,
        /// The longest such pause. Unset: five minutes. Example: `longest_backoff = "5m"`.
        @into longest_backoff: Option<Duration> as Option<HumanTime> = None,
        /// Errors for which a message is given up at once, by name or kind (`"KeyError"`, `"WorkerDied"`). Wrong
        /// arguments are always included.
        give_up_on: Vec<String> = Vec::new(),
        /// The duration of a message's lease, which is extended while the message is being handled. The messages of a
        /// killed process are delivered again after this time. Unset: five minutes. Example:
        /// `visibility_timeout = "5m"`.
        @into visibility_timeout: Option<Duration> as Option<HumanTime> = None,
        /// How long one receive operation waits for messages, at most 20 s. Unset: 20 s. Example: `wait = "20s"`.
        @into wait: Option<Duration> as Option<HumanTime> = None,
    }
    also {
        /// The loop's name. By default it is made of the mailbox and the command. In a file, it is the name of the table.
        name: Option<String> = None,
    }
}

impl PoolLoopOptions {
    /// Returns options for a loop that calls this command of the engine's first pool.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), ..Self::default() }
    }

    /// Puts the message's id into the call's metadata.
    pub fn tell_id(mut self) -> Self {
        self.tell_id = true;
        self
    }

    pub(super) fn policy(&self) -> DeadLetterPolicy {
        let mut policy = DeadLetterPolicy::default();
        policy.max_deliveries = self.max_deliveries;
        policy.include.extend(self.give_up_on.iter().cloned());
        policy.backoff.first = self.backoff.unwrap_or(policy.backoff.first);
        let longest = self.longest_backoff.unwrap_or(policy.backoff.longest);
        policy.backoff.longest = longest.max(policy.backoff.first);
        policy
    }
}

setters! {
    impl PoolLoopOptions;

    /// Sets the loop's name.
    name(name: impl Into<String>) = Some(name.into());

    /// Sets the pool of the command.
    pool(name: impl Into<String>) = Some(name.into());
}
