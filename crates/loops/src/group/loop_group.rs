//! A group of loops that run as one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};

use super::{CrashPolicy, run};
use crate::lifecycle::CoordinatorError;
use crate::{
    Control, EndOrder, Intake, LoopError, LoopHealth, RunOptions, Runnable, SHUTDOWN_TIMEOUT, Watchdog,
};
use snakepit_settings::setters;

/// Whether a group handles signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignalHandling {
    Answer,
    Leave,
}

/// The reason why the run of a group failed.
///
/// ```no_run
/// # use snakepit::loops::{GroupError, LoopGroup, RunOptions};
/// # async fn doc(group: LoopGroup) -> Result<(), GroupError> {
/// match group.run(RunOptions::new()).await {
///     Ok(end) if end.is_clean => println!("all messages were finished or given back"),
///     Ok(end) => std::process::exit(end.status.into()),
///     Err(GroupError::Crashed { name, source }) => eprintln!("the loop {name} crashed: {source}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A loop crashed, and the policy stops all loops.
    #[error("the loop {name} crashed, and the group was stopped")]
    Crashed {
        /// The loop's name.
        name: String,
        /// Why the loop crashed.
        #[source]
        source: LoopError,
    },
    /// The options are out of range, or the group is already running.
    #[error(transparent)]
    Run(#[from] LoopError),
    /// Signals cannot be handled.
    #[error(transparent)]
    SignalHandling(#[from] CoordinatorError),
    /// The watchdog's thread cannot be started.
    #[error("cannot start the watchdog's thread: is the limit of threads (ulimit -u) reached?")]
    Watchdog(#[source] std::io::Error),
}

/// How the run of a group ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GroupEnd {
    /// Whether all loops ended in time, and none crashed meanwhile or was cut short.
    pub is_clean: bool,
    /// The exit status for the process: 0, or 1 if a loop crashed meanwhile or did not end in time, or 128 + n if
    /// signal n cut the run short.
    pub status: u8,
}

/// The number of messages that a group still has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RemainingMessages {
    /// The number of messages that are being handled.
    pub in_flight: usize,
    /// The number of messages that were received but not started.
    pub waiting: usize,
}

#[derive(Debug)]
pub(super) struct GroupMember {
    pub(super) runnable: Arc<dyn Runnable>,
    pub(super) priority: i32,
}

/// A group of loops that run as one. A group is a loop itself.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use snakepit::loops::{LoopGroup, MainLoop, RunOptions};
/// # async fn doc(main: Arc<MainLoop>, background: Arc<MainLoop>) -> Result<(), Box<dyn std::error::Error>> {
/// let group = LoopGroup::new("service").with_priority(main, 10).with(background);
/// let end = group.run(RunOptions::new()).await?;
/// std::process::exit(end.status.into());
/// # }
/// ```
#[derive(Debug)]
pub struct LoopGroup {
    pub(super) control: Control,
    pub(super) members: Vec<GroupMember>,
    pub(super) crash: CrashPolicy,
    pub(super) shutdown_timeout: Duration,
    pub(super) watchdog: Option<Watchdog>,
}

impl LoopGroup {
    /// Returns a group without loops.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            control: Control::new(name),
            members: Vec::new(),
            crash: CrashPolicy::default(),
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            watchdog: None,
        }
    }

    /// Adds a loop of priority 0.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use snakepit::loops::{HandlerFailure, LoopGroup, MainLoop};
    /// use snakepit::mailbox::{MemoryMailbox, TypedMessage};
    ///
    /// let print = |order: TypedMessage<String>| async move { Ok::<_, HandlerFailure>(println!("{}", order.value)) };
    /// let orders = MainLoop::new("orders", Arc::new(MemoryMailbox::new("orders")), print);
    /// let group = LoopGroup::new("service").with(Arc::new(orders));
    /// assert_eq!(group.loops().count(), 1);
    /// ```
    pub fn with(self, runnable: Arc<dyn Runnable>) -> Self {
        self.with_priority(runnable, 0)
    }

    /// Adds a loop. Loops of a higher priority are shut down after the others, in the time that those leave.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use snakepit::loops::{LoopGroup, MainLoop};
    /// # fn doc(orders: Arc<MainLoop>, mails: Arc<MainLoop>) {
    /// // Orders send mails, so the loop of the mails ends last.
    /// let group = LoopGroup::new("service").with(orders).with_priority(mails, 10);
    /// # }
    /// ```
    pub fn with_priority(mut self, runnable: Arc<dyn Runnable>, priority: i32) -> Self {
        self.members.push(GroupMember { runnable, priority });
        self
    }

    /// Sets what the group does when one of its loops crashes.
    ///
    /// ```
    /// use snakepit::loops::{CrashPolicy, LoopGroup};
    ///
    /// let group = LoopGroup::new("service").crash_policy(CrashPolicy::restart());
    /// ```
    pub fn crash_policy(mut self, policy: CrashPolicy) -> Self {
        self.crash = policy;
        self
    }

    /// Returns the loops of the group.
    pub fn loops(&self) -> impl Iterator<Item = &Arc<dyn Runnable>> {
        self.members.iter().map(|member| &member.runnable)
    }

    /// Runs all loops until they have ended, by themselves or on SIGTERM or SIGINT. The first signal shuts the group
    /// down, the second stops it now, and the third ends the process. The signal handlers stay installed afterwards.
    pub async fn run(&self, options: RunOptions) -> Result<GroupEnd, GroupError> {
        self.run_with(options, SignalHandling::Answer).await
    }

    /// Runs all loops until they have ended, and does not handle signals. A [`LoopScope`](crate::LoopScope) and a group
    /// within a group run this way.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use snakepit::loops::{GroupError, LoopGroup, RunOptions};
    /// # async fn ctrl_c() {}
    /// # async fn doc(group: Arc<LoopGroup>) -> Result<(), GroupError> {
    /// // The host handles signals itself.
    /// let ended = Arc::clone(&group);
    /// tokio::spawn(async move {
    ///     ctrl_c().await;
    ///     ended.end().await
    /// });
    /// let end = group.run_without_signals(RunOptions::new()).await?;
    /// println!("clean: {}", end.is_clean);
    /// # Ok(()) }
    /// ```
    pub async fn run_without_signals(&self, options: RunOptions) -> Result<GroupEnd, GroupError> {
        self.run_with(options, SignalHandling::Leave).await
    }

    async fn run_with(&self, options: RunOptions, signals: SignalHandling) -> Result<GroupEnd, GroupError> {
        options.check()?;
        let _run = self.control.begin()?;
        for runnable in self.loops() {
            runnable.control().belong_to(&self.control);
        }
        run::run(self, options.shutdown_timeout(self.shutdown_timeout), signals).await
    }

    /// Shuts all loops down, in the order of their priorities, within the group's shutdown timeout.
    ///
    /// ```no_run
    /// # async fn doc(group: snakepit::loops::LoopGroup) {
    /// if !group.end().await {
    ///     eprintln!("{:?} are not finished", group.left());
    /// }
    /// # }
    /// ```
    pub fn end(&self) -> BoxFuture<'static, bool> {
        self.shutdown(self.shutdown_timeout)
    }

    /// Pauses all loops: messages in flight complete, and messages that were not started go back. [`LoopGroup::resume`]
    /// ends the pause.
    ///
    /// ```no_run
    /// # async fn doc(group: snakepit::loops::LoopGroup) {
    /// let left = group.drain();
    /// println!("{} messages are being handled", left.in_flight);
    /// group.until_empty().await;
    /// // The database can be upgraded now.
    /// group.resume();
    /// # }
    /// ```
    pub fn drain(&self) -> RemainingMessages {
        self.set_intake(Intake::Paused);
        self.left()
    }

    /// Lets the loops take messages again.
    pub fn resume(&self) {
        self.set_intake(Intake::Open);
    }

    /// Returns how many messages the loops still have.
    pub fn left(&self) -> RemainingMessages {
        let mut left = RemainingMessages::default();
        for member in self.loops() {
            left.in_flight += member.control().in_flight();
            left.waiting += member.control().waiting();
        }
        left
    }

    /// Waits until the loops have no messages.
    pub async fn until_empty(&self) {
        join_all(self.loops().map(|member| member.control().until_empty())).await;
    }

    /// Reports whether the heartbeats of all loops are recent. A slow message does not make a group dead, unless the
    /// watchdog has a [limit](Watchdog::liveness_limit) for it.
    pub fn is_alive(&self) -> bool {
        let limits = self.watchdog.unwrap_or_default();
        self.loops().all(|runnable| {
            let control = runnable.control();
            let beats = !control.running() || control.heartbeat().age() < limits.turn_limit;
            let progresses =
                |limit| control.in_flight_messages().iter().all(|held| held.last_beat.elapsed() < limit);
            beats && limits.liveness_limit.is_none_or(progresses)
        })
    }

    /// Reports whether all loops run, take messages and have no trouble.
    ///
    /// ```no_run
    /// # fn doc(group: snakepit::loops::LoopGroup) {
    /// let status = if group.is_ready() { 200 } else { 503 };
    /// # }
    /// ```
    pub fn is_ready(&self) -> bool {
        let serves = |it: &LoopHealth| {
            it.running && it.intake == Intake::Open && it.end == EndOrder::Not && it.trouble.is_none()
        };
        self.running() && self.control.wanted().receives() && self.health().iter().all(serves)
    }

    /// Reports whether all loops have begun.
    pub fn has_started(&self) -> bool {
        self.health().iter().all(|it| it.has_begun)
    }

    /// Returns the state of each loop.
    ///
    /// ```no_run
    /// # fn doc(group: snakepit::loops::LoopGroup) {
    /// for health in group.health() {
    ///     println!("{}: {} messages, the oldest for {:?}", health.name, health.in_flight, health.oldest);
    ///     if let Some(trouble) = health.trouble {
    ///         eprintln!("{} cannot work: {trouble}", health.name);
    ///     }
    /// }
    /// # }
    /// ```
    pub fn health(&self) -> Vec<LoopHealth> {
        self.loops().map(|runnable| LoopHealth::of(runnable.control())).collect()
    }
}

setters! {
    impl LoopGroup;

    /// Sets how long a shutdown by a signal, a crash or [`LoopGroup::end`] may take.
    shutdown_timeout(timeout: Duration) = timeout;

    /// Adds a watchdog that watches the loops.
    watchdog(watchdog: Watchdog) = Some(watchdog);
}

impl Runnable for LoopGroup {
    fn control(&self) -> &Control {
        &self.control
    }

    /// Runs the group as [`LoopGroup::run_without_signals`] does.
    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(async move {
            let ended = self.run_without_signals(options).await;
            ended.map(drop).map_err(|error| match error {
                GroupError::Run(error) | GroupError::Crashed { source: error, .. } => error,
                GroupError::SignalHandling(error) => LoopError::Signals(error),
                GroupError::Watchdog(source) => LoopError::Thread { name: self.name().to_owned(), source },
            })
        })
    }

    fn set_intake(&self, intake: Intake) {
        self.control.set_intake(intake);
        for member in self.loops() {
            member.set_intake(intake);
        }
    }
}
