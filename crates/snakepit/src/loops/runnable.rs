//! What every loop is, whoever writes it.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{Control, Heartbeat, Intake};
use crate::mailbox::{MailboxError, Receive};

/// For how long a shutdown waits unless it is told otherwise.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a loop ended, if not because it was to. The errors of handlers and backends are no reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// It runs already.
    #[error("the loop {0} runs already: wait for its end, or make another one")]
    RunsAlready(String),
    /// It was told to run in a way that cannot be.
    #[error("the loop cannot run so")]
    Options(#[source] MailboxError),
    /// It panicked.
    #[error("the loop {name} panicked: {reason}")]
    Panicked {
        /// Its name.
        name: String,
        /// What the panic said.
        reason: String,
    },
    /// Something that it cannot do without is missing.
    #[error("the loop {name} failed: {reason}")]
    Failed {
        /// Its name.
        name: String,
        /// Why, for a person.
        reason: String,
    },
}

/// How a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// It ends by itself after so many receives, with or without messages; none: it does not.
    pub max_iterations: Option<u64>,
    /// For how long messages are leased, more than nothing and up to 12 h. Leases are extended while messages are in hand.
    pub visibility_timeout: Duration,
    /// How long one receive waits, 0 s to 20 s. A loop that is told to end does not wait.
    pub wait: Duration,
    /// For how long whoever shuts it down is going to wait: a loop whose leases are too short for that says so.
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
    /// Until it is told to end; leases of five minutes, waits of twenty seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends by itself after so many receives.
    pub fn max_iterations(mut self, iterations: u64) -> Self {
        self.max_iterations = Some(iterations);
        self
    }

    /// Leases messages for so long.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// Waits so long in one receive.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For how long whoever shuts it down is going to wait.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Every loop asks this first.
    pub fn check(&self) -> Result<(), LoopError> {
        if self.visibility_timeout.is_zero() {
            return Err(LoopError::Options(MailboxError::OutOfRange {
                option: "visibility_timeout",
                value: "0s".into(),
                range: "more than nothing: a loop handles what it leases".into(),
            }));
        }
        self.receive(1).check().map_err(LoopError::Options)
    }

    /// A receive of up to so many messages.
    pub(crate) fn receive(&self, messages: usize) -> Receive {
        Receive::new().max_messages(messages).visibility_timeout(self.visibility_timeout).wait(self.wait)
    }
}

/// A loop. It needs a [`Control`] and a `run`; the rest follows from them.
pub trait Runnable: fmt::Debug + Send + Sync {
    /// Its handle.
    fn control(&self) -> &Control;

    /// Handles messages until [`Runnable::shutdown`], the last iteration, or the end of the mailbox. After a shutdown, also
    /// one that came before, it returns at once. It begins with [`Control::begin`], and beats as it turns.
    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>>;

    /// Its name.
    fn name(&self) -> &str {
        self.control().name()
    }

    /// Told to finish at once, whether or not anybody awaits this; says whether it has ended in time ([`SHUTDOWN_TIMEOUT`] is
    /// the usual one). See [`Control::shutdown`].
    fn shutdown(&self, timeout: Duration) -> BoxFuture<'static, bool> {
        self.control().shutdown(timeout)
    }

    /// Cancels what is in flight, gives it back, and ends.
    fn stop_now(&self) {
        self.control().stop_now();
    }

    /// Stops, or goes on with, taking messages.
    fn set_intake(&self, intake: Intake) {
        self.control().set_intake(intake);
    }

    /// Whether it runs.
    fn running(&self) -> bool {
        self.control().running()
    }

    /// When it last turned.
    fn heartbeat(&self) -> &Heartbeat {
        self.control().heartbeat()
    }
}
