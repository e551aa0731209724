//! The trait of all loops, the options of a run, and why a run fails.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::mailbox::{MailboxError, ReceiveOptions};
use crate::{Control, Heartbeat, Intake};

/// How long a shutdown waits by default.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a loop ended, unless it was told to. Errors of handlers and of mailboxes end no loop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The loop runs already.
    #[error("the loop {0} runs already: wait for its end, or make another loop")]
    RunsAlready(String),
    /// An option of the run is out of its range, or the mailbox refused the policy's limit.
    #[error("the loop cannot run with these options")]
    Options(#[source] MailboxError),
    /// The loop panicked.
    #[error("the loop {name} panicked: {reason}")]
    Panicked {
        /// The loop's name.
        name: String,
        /// The panic's message.
        reason: String,
    },
    /// The loop lacks something that it needs: a pool, a command, a thread.
    #[error("the loop {name} failed: {reason}")]
    Failed {
        /// The loop's name.
        name: String,
        /// What is missing, as text.
        reason: String,
    },
}

/// How a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// The loop ends by itself after this many receives, with or without messages; `None`: it does not.
    pub max_iterations: Option<u64>,
    /// How long messages are leased, more than 0 s and up to 12 h. Leases are extended while the loop has the messages.
    pub visibility_timeout: Duration,
    /// How long one receive waits for messages, 0 s to 20 s. A loop that is ordered to end does not wait.
    pub wait: Duration,
    /// How long the caller of a shutdown is going to wait. A loop whose leases are too short for that warns.
    pub shutdown_timeout: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            max_iterations: None,
            visibility_timeout: Duration::from_mins(5),
            wait: Duration::from_secs(20),
            shutdown_timeout: SHUTDOWN_TIMEOUT,
        }
    }
}

impl RunOptions {
    /// Runs until it is ordered to end, with leases of five minutes and waits of twenty seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends by itself after this many receives.
    pub fn max_iterations(mut self, iterations: u64) -> Self {
        self.max_iterations = Some(iterations);
        self
    }

    /// Leases messages for this long.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// Waits this long in one receive.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the caller of a shutdown is going to wait.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Checks the ranges. Every loop does that first.
    pub fn check(&self) -> Result<(), LoopError> {
        if self.visibility_timeout.is_zero() {
            return Err(LoopError::Options(MailboxError::OutOfRange {
                option: "visibility_timeout",
                value: "0s".into(),
                range: "more than 0 s: a loop handles what it leases".into(),
            }));
        }
        self.receive(1).check().map_err(LoopError::Options)
    }

    /// A receive of up to this many messages.
    pub(crate) fn receive(&self, messages: usize) -> ReceiveOptions {
        ReceiveOptions::new()
            .max_messages(messages)
            .visibility_timeout(self.visibility_timeout)
            .wait(self.wait)
    }
}

/// A loop. It needs a [`Control`] and a `run`; everything else follows from them.
pub trait Runnable: fmt::Debug + Send + Sync {
    /// The loop's handle.
    fn control(&self) -> &Control;

    /// Handles messages until [`Runnable::shutdown`], the last iteration, or the end of the mailbox. After a shutdown, even one before the run,
    /// it returns at once. It begins with [`Control::begin`], and beats the [`Heartbeat`] in each iteration.
    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>>;

    /// The loop's name.
    fn name(&self) -> &str {
        self.control().name()
    }

    /// Tells the loop to finish at once, whether or not the future is awaited. The future says whether the loop ended in time
    /// ([`SHUTDOWN_TIMEOUT`] is the usual one). See [`Control::shutdown`].
    fn shutdown(&self, timeout: Duration) -> BoxFuture<'static, bool> {
        self.control().shutdown(timeout)
    }

    /// Cancels what is in flight, gives it back, and ends the loop.
    fn stop_now(&self) {
        self.control().stop_now();
    }

    /// Pauses or resumes the intake of messages.
    fn set_intake(&self, intake: Intake) {
        self.control().set_intake(intake);
    }

    /// Whether the loop runs.
    fn running(&self) -> bool {
        self.control().running()
    }

    /// The loop's heartbeat.
    fn heartbeat(&self) -> &Heartbeat {
        self.control().heartbeat()
    }
}
