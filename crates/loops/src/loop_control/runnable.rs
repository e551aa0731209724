//! The trait of all loops, the options of a run, and why a run fails.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::lifecycle::CoordinatorError;
use crate::mailbox::{MailboxError, ReceiveOptions};
use crate::{Control, Heartbeat, Intake};
use snakepit_settings::setters;

/// The default time that a shutdown waits.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why a loop ended without an order. Errors of handlers and of mailboxes do not end a loop.
///
/// ```no_run
/// # use std::sync::Arc;
/// use snakepit::loops::{LoopError, PoolLoop, PoolLoopOptions};
/// # use snakepit::mailbox::MemoryMailbox;
///
/// # fn doc(pit: snakepit::Snakepit, orders: Arc<MemoryMailbox>) -> Result<(), LoopError> {
/// match PoolLoop::new(&pit, orders, &PoolLoopOptions::new("handle_order")) {
///     Ok(orders) => println!("{orders:?} can run"),
///     Err(LoopError::NoSuchCommand { command, known, .. }) => eprintln!("no worker has {command}: {known}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The loop is already running.
    #[error("the loop {0} is already running: wait until it ends, or create another loop")]
    RunsAlready(String),
    /// An option of the run is out of range, or the mailbox rejected the policy's limit.
    #[error("the loop cannot run with these options")]
    Options(#[source] MailboxError),
    /// The loop panicked.
    #[error("the loop {name} panicked: {reason}; correct its code, and run it again")]
    Panicked {
        /// The name of the loop.
        name: String,
        /// The panic's message.
        reason: String,
    },
    /// The engine has no pool.
    #[error("the loop {name} needs a pool, and the engine has none: add one to its builder")]
    NoPools {
        /// The name of the loop.
        name: String,
    },
    /// The engine has no pool of this name.
    #[error("the loop {name}: there is no pool {pool}; {known}")]
    NoSuchPool {
        /// The name of the loop.
        name: String,
        /// The name of the pool that the loop needs.
        pool: String,
        /// The pools that exist, or the one with the most similar name, as text.
        known: String,
    },
    /// The pool's workers do not have the command.
    #[error("the loop {name}: the workers of pool {pool} have no command {command}; {known}")]
    NoSuchCommand {
        /// The name of the loop.
        name: String,
        /// The pool.
        pool: String,
        /// The command that the loop calls.
        command: String,
        /// The commands that exist, or the one with the most similar name, as text.
        known: String,
    },
    /// The loop's mailbox does not exist.
    #[error(
        "the loop {name}: there is no mailbox {mailbox}{}",
        .nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
    )]
    NoSuchMailbox {
        /// The name of the loop.
        name: String,
        /// The mailbox, with its file or server.
        mailbox: String,
        /// The mailbox there with the most similar name.
        nearest: Option<String>,
    },
    /// The loop's mailbox cannot be opened.
    #[error("the loop {name} cannot open its mailbox")]
    Mailbox {
        /// The name of the loop.
        name: String,
        /// What the mailbox reported.
        #[source]
        source: MailboxError,
    },
    /// A thread of the loop cannot be started.
    #[error("the loop {name} cannot start a thread: is the limit of threads (ulimit -u) reached?")]
    Thread {
        /// The name of the loop.
        name: String,
        /// What the operating system reported.
        #[source]
        source: std::io::Error,
    },
    /// The signals of a group cannot be handled.
    #[error(transparent)]
    Signals(CoordinatorError),
    /// A loop of your own failed.
    #[error("the loop {name} failed: {reason}")]
    Failed {
        /// The name of the loop.
        name: String,
        /// Why it failed.
        reason: String,
    },
}

/// The options of a run.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::loops::RunOptions;
///
/// // Handles what a few receives find, and ends.
/// let options = RunOptions::new().max_iterations(10).wait(Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// The number of receives after which the loop ends, with or without messages. `None` means no limit.
    pub max_iterations: Option<u64>,
    /// How long messages are leased: more than 0 s and up to 12 h. Leases are extended while the loop has the messages.
    pub visibility_timeout: Duration,
    /// How long one receive waits for messages, from 0 s to 20 s. A loop that must end does not wait.
    pub wait: Duration,
    /// How long the caller of a shutdown will wait. The loop warns if its leases are too short for that.
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
    /// Returns options for a run that continues until it is told to end, with leases of five minutes and waits of
    /// twenty seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the ranges. Every loop does this first.
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

    /// Returns the options of a receive of up to this many messages.
    pub(crate) fn receive(&self, messages: usize) -> ReceiveOptions {
        ReceiveOptions::new()
            .max_messages(messages)
            .visibility_timeout(self.visibility_timeout)
            .wait(self.wait)
    }
}

setters! {
    impl RunOptions;

    /// Ends the run after this many receives.
    max_iterations(iterations: u64) = Some(iterations);

    /// Leases messages for this long.
    visibility_timeout(timeout: Duration) = timeout;

    /// Waits this long for messages in one receive.
    wait(wait: Duration) = wait;

    /// Sets how long the caller of a shutdown will wait.
    shutdown_timeout(timeout: Duration) = timeout;
}

/// A loop. It needs a [`Control`] and a `run`; the other methods follow from them.
pub trait Runnable: fmt::Debug + Send + Sync {
    /// Returns the handle of the loop.
    fn control(&self) -> &Control;

    /// Handles messages until [`Runnable::shutdown`], the last iteration or the end of the mailbox. After a shutdown,
    /// even one before the run, it returns at once. An implementation begins with [`Control::begin`] and beats the
    /// [`Heartbeat`] in each iteration.
    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>>;

    /// Returns the name of the loop.
    fn name(&self) -> &str {
        self.control().name()
    }

    /// Tells the loop at once to finish, whether or not the future is awaited. The future returns whether the loop
    /// ended in time ([`SHUTDOWN_TIMEOUT`] is the usual timeout). See [`Control::shutdown`].
    fn shutdown(&self, timeout: Duration) -> BoxFuture<'static, bool> {
        self.control().shutdown(timeout)
    }

    /// Cancels the messages in flight, gives them back, and ends the loop.
    fn stop_now(&self) {
        self.control().stop_now();
    }

    /// Pauses or resumes the intake of messages.
    fn set_intake(&self, intake: Intake) {
        self.control().set_intake(intake);
    }

    /// Reports whether the loop is running.
    fn running(&self) -> bool {
        self.control().running()
    }

    /// Returns the heartbeat of the loop.
    fn heartbeat(&self) -> &Heartbeat {
        self.control().heartbeat()
    }
}
