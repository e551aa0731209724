//! Many loops, one end: run together, drained together, shut down in parallel under one deadline.
//!
//! Owns the list of loops and their priorities. `turning` runs them, `crash` says what a crash leads to, `ending` in which
//! order they end.

mod crash;
mod ending;
mod turning;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::{Serialize, Serializer};

pub use crash::CrashPolicy;

use super::{Control, End, InHand, Intake, LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT, Watchdog};
use crate::lifecycle::SignalError;

/// Of how many messages the health of a loop tells.
const MOST_MESSAGES: usize = 10;

/// Whether a group answers signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signals {
    Answer,
    Leave,
}

/// Why a group's run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A loop crashed, and the policy is to stop all.
    #[error("the loop {name} crashed, and the group was stopped")]
    Crashed {
        /// The loop.
        name: String,
        /// Why.
        #[source]
        source: LoopError,
    },
    /// It cannot run so, or runs already.
    #[error(transparent)]
    Run(#[from] LoopError),
    /// It cannot answer signals.
    #[error(transparent)]
    Signals(#[from] SignalError),
    /// Its watchdog has no thread.
    #[error("cannot start a thread for the watchdog")]
    Watchdog(#[source] std::io::Error),
}

/// How a group's run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GroupEnd {
    /// Whether all loops ended in time, and none crashed meanwhile or was cut short.
    pub is_clean: bool,
    /// What the process should exit with: 0, 1 if a loop did not end in time or crashed meanwhile, 128 + n if the signal n cut
    /// it short.
    pub status: u8,
}

/// How much a group has in its hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Left {
    /// Messages that are being handled.
    pub in_flight: usize,
    /// Messages that were received and are not started.
    pub waiting: usize,
}

/// How it stands with one loop of a group.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct LoopHealth {
    /// Its name.
    pub name: String,
    /// Whether it has ever run.
    pub has_begun: bool,
    /// Whether it runs.
    pub running: bool,
    /// Whether it takes messages.
    pub intake: Intake,
    /// Whether it is to end.
    pub end: End,
    /// What keeps it from its work.
    pub trouble: Option<String>,
    /// How long ago it last turned; seconds in JSON, as all durations here.
    #[serde(serialize_with = "seconds")]
    pub heartbeat: Duration,
    /// How many messages are being handled.
    pub in_flight: usize,
    /// For how long the oldest of them has been.
    #[serde(serialize_with = "seconds_if_any")]
    pub oldest: Option<Duration>,
    /// Those that have been handled for longest, ten at most.
    pub messages: Vec<MessageHealth>,
}

/// How it stands with a message that is being handled.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct MessageHealth {
    /// Its id.
    pub id: String,
    /// For how long it has been handled.
    #[serde(serialize_with = "seconds")]
    pub lasted: Duration,
    /// How long ago its handler last told that it makes progress, or was begun.
    #[serde(serialize_with = "seconds")]
    pub since_beat: Duration,
}

impl MessageHealth {
    fn of(held: &InHand) -> Self {
        let (lasted, since_beat) = (held.since.elapsed(), held.last_beat.elapsed());
        Self { id: held.message.clone(), lasted, since_beat }
    }
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "as serde asks")]
fn seconds_if_any<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

#[derive(Debug)]
struct Member {
    runnable: Arc<dyn Runnable>,
    priority: i32,
}

/// Loops that are run as one. It is a loop itself.
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
    control: Control,
    members: Vec<Member>,
    crash: CrashPolicy,
    shutdown_timeout: Duration,
    watchdog: Option<Watchdog>,
}

impl LoopGroup {
    /// A group without loops.
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
    pub fn with(self, runnable: Arc<dyn Runnable>) -> Self {
        self.with_priority(runnable, 0)
    }

    /// Adds a loop. Those of a higher priority are shut down after the others, and have the time that those have left.
    pub fn with_priority(mut self, runnable: Arc<dyn Runnable>, priority: i32) -> Self {
        self.members.push(Member { runnable, priority });
        self
    }

    /// What it does when one of its loops crashes.
    pub fn crash_policy(mut self, policy: CrashPolicy) -> Self {
        self.crash = policy;
        self
    }

    /// How long a shutdown by a signal, a crash or [`LoopGroup::end`] may take.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Watches the loops.
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// Its loops.
    pub fn loops(&self) -> impl Iterator<Item = &Arc<dyn Runnable>> {
        self.members.iter().map(|member| &member.runnable)
    }

    /// Runs all loops until they have ended, or SIGTERM or SIGINT has ended them: the first signal shuts down, the second stops
    /// now, the third ends the process. The handlers of signals stay when it is over.
    pub async fn run(&self, options: RunOptions) -> Result<GroupEnd, GroupError> {
        self.run_with(options, Signals::Answer).await
    }

    /// Runs all loops until they have ended, and leaves signals to others. So does a [`Scope`](super::Scope), and a group that
    /// this one is a loop of.
    pub async fn run_without_signals(&self, options: RunOptions) -> Result<GroupEnd, GroupError> {
        self.run_with(options, Signals::Leave).await
    }

    async fn run_with(&self, options: RunOptions, signals: Signals) -> Result<GroupEnd, GroupError> {
        options.check()?;
        let _run = self.control.begin()?;
        for runnable in self.loops() {
            runnable.control().belong_to(&self.control);
        }
        turning::run(self, options.shutdown_timeout(self.shutdown_timeout), signals).await
    }

    /// Shuts all loops down, in parallel or by priority, within the group's time.
    pub fn end(&self) -> BoxFuture<'static, bool> {
        self.shutdown(self.shutdown_timeout)
    }

    /// No loop takes more messages; those in flight complete, those not started are given back. [`LoopGroup::resume`] takes
    /// it back.
    pub fn drain(&self) -> Left {
        self.set_intake(Intake::Paused);
        self.left()
    }

    /// The loops take messages again.
    pub fn resume(&self) {
        self.set_intake(Intake::Open);
    }

    /// How much is in their hands.
    pub fn left(&self) -> Left {
        let mut left = Left::default();
        for member in self.loops() {
            left.in_flight += member.control().in_flight();
            left.waiting += member.control().waiting();
        }
        left
    }

    /// Until nothing is in their hands.
    pub async fn until_empty(&self) {
        join_all(self.loops().map(|member| member.control().until_empty())).await;
    }

    /// Whether all loops turn. A message that takes long is no reason to say no, unless the watchdog has a
    /// [limit](Watchdog::liveness_limit) for that.
    pub fn is_alive(&self) -> bool {
        let limits = self.watchdog.unwrap_or_default();
        self.loops().all(|runnable| {
            let control = runnable.control();
            let turns = !control.running() || control.heartbeat().age() < limits.turn_limit;
            let moves = |limit| control.in_hand().iter().all(|held| held.last_beat.elapsed() < limit);
            turns && limits.liveness_limit.is_none_or(moves)
        })
    }

    /// Whether all loops run, take messages and have no trouble.
    pub fn is_ready(&self) -> bool {
        let serves = |it: &LoopHealth| {
            it.running && it.intake == Intake::Open && it.end == End::Not && it.trouble.is_none()
        };
        self.running() && self.control.wanted().receives() && self.health().iter().all(serves)
    }

    /// Whether all loops have begun.
    pub fn has_started(&self) -> bool {
        self.health().iter().all(|it| it.has_begun)
    }

    /// How it stands with each loop.
    pub fn health(&self) -> Vec<LoopHealth> {
        let health = |runnable: &Arc<dyn Runnable>| {
            let control = runnable.control();
            let orders = control.wanted();
            let in_hand = control.in_hand();
            LoopHealth {
                name: control.name().to_owned(),
                has_begun: control.has_begun(),
                running: control.running(),
                intake: orders.intake,
                end: orders.end,
                trouble: control.trouble(),
                heartbeat: control.heartbeat().age(),
                in_flight: control.in_flight(),
                oldest: in_hand.first().map(|held| held.since.elapsed()),
                messages: in_hand.iter().take(MOST_MESSAGES).map(MessageHealth::of).collect(),
            }
        };
        self.loops().map(health).collect()
    }
}

impl Runnable for LoopGroup {
    fn control(&self) -> &Control {
        &self.control
    }

    /// As [`LoopGroup::run_without_signals`].
    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(async move {
            match self.run_without_signals(options).await {
                Ok(_) => Ok(()),
                Err(GroupError::Run(error) | GroupError::Crashed { source: error, .. }) => Err(error),
                Err(error) => {
                    Err(LoopError::Failed { name: self.name().to_owned(), reason: error.to_string() })
                }
            }
        })
    }

    fn set_intake(&self, intake: Intake) {
        self.control.set_intake(intake);
        for member in self.loops() {
            member.set_intake(intake);
        }
    }
}
