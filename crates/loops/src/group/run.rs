//! The run of a group: loops end, crash and are restarted, until all of them must end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::loop_group::SignalHandling;
use super::shutdown_order::shut_down;
use super::{CrashPolicy, GroupEnd, GroupError, LoopGroup};
use crate::error_text::with_causes;
use crate::health::WatchdogGuard;
use crate::lifecycle::{ShutdownCoordinator, Stage};
use crate::telemetry::{Event, Level, emit_with};
use crate::{EndOrder, HandlerFailure, LoopError, LoopOrders, RunOptions};

/// The time in which loops may give messages back after a stop now. The leases of the rest run out.
const CUT_TIMEOUT: Duration = Duration::from_secs(10);

/// The exit status after a stop now without a signal.
const CUT_STATUS: u8 = 1;

/// The index of a loop in the group.
type Index = usize;

struct RunningMember {
    index: Index,
    task: AbortHandle,
    since: Instant,
}

struct GroupRun<'a> {
    group: &'a LoopGroup,
    options: RunOptions,
    tasks: JoinSet<Result<(), LoopError>>,
    running: HashMap<Id, RunningMember>,
    /// The loops that will run again, and when.
    restarts: Vec<(Instant, Index)>,
    crashes: HashMap<Index, u32>,
    crashed: Option<GroupError>,
    /// Whether a loop that should finish crashed instead, so that its messages in flight did not complete.
    has_crashed_late: bool,
    shutdown: Option<BoxFuture<'a, ()>>,
    /// When all loops that are still running are dropped. `None` unless the group is ending.
    limit: Option<Instant>,
    /// The exit status of a run that was cut short.
    cut_status: Option<u8>,
    /// Loops that the watchdog wants restarted.
    stuck: mpsc::UnboundedReceiver<Index>,
}

pub(super) async fn run(
    group: &LoopGroup,
    options: RunOptions,
    signals: SignalHandling,
) -> Result<GroupEnd, GroupError> {
    let stages = match signals {
        SignalHandling::Answer => Some(ShutdownCoordinator::install()?.stages()),
        SignalHandling::Leave => None,
    };
    // The number of entries is bounded by the messages in flight, because the watchdog reports each stuck message or
    // loop once.
    let (restart, stuck) = mpsc::unbounded_channel();
    let start = |watchdog| WatchdogGuard::start(watchdog, group.loops().cloned().collect(), restart);
    let _watchdog = group.watchdog.map(start).transpose().map_err(GroupError::Watchdog)?;
    let run = GroupRun {
        group,
        options,
        tasks: JoinSet::new(),
        running: HashMap::new(),
        restarts: Vec::new(),
        crashes: HashMap::new(),
        crashed: None,
        has_crashed_late: false,
        shutdown: None,
        limit: None,
        cut_status: None,
        stuck,
    };
    run.until_end(stages).await
}

impl GroupRun<'_> {
    async fn until_end(mut self, mut stages: Option<watch::Receiver<Stage>>) -> Result<GroupEnd, GroupError> {
        let mut orders = self.group.control.orders();
        let stage = stages.as_ref().map_or(Stage::Running, |stages| *stages.borrow());
        self.obey(*orders.borrow(), stage);
        if self.is_ending() {
            // The end was ordered before the run, so nothing is received.
            return self.ended(true);
        }
        for index in 0..self.group.members.len() {
            self.start(index);
        }
        loop {
            self.group.control.heartbeat().beat();
            let stage = stages.as_mut().map_or(Stage::Running, |stages| *stages.borrow_and_update());
            self.obey(*orders.borrow_and_update(), stage);
            if self.tasks.is_empty() && (self.restarts.is_empty() || self.is_ending()) {
                return self.ended(true);
            }
            if self.limit.is_some_and(|limit| limit <= Instant::now()) {
                // All loops that are still running are dropped here, and their leases run out.
                return self.ended(false);
            }
            let restarts = self.restarts.iter().map(|(at, _)| *at).filter(|_| !self.is_ending());
            let wake_at = restarts.chain(self.limit).min();
            tokio::select! {
                biased;
                Some(joined) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.joined(joined),
                _ = orders.changed() => {}
                // An error means that the coordinator was reset, and no more signals will come.
                Some(Ok(())) = OptionFuture::from(stages.as_mut().map(watch::Receiver::changed)) => {}
                Some(index) = self.stuck.recv() => self.abort_stuck(index),
                Some(()) = OptionFuture::from(self.shutdown.as_mut()) => self.shutdown = None,
                Some(()) = OptionFuture::from(wake_at.map(sleep_until)) => self.start_due(),
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.limit.is_some()
    }

    fn start(&mut self, index: Index) {
        let runnable = Arc::clone(&self.group.members[index].runnable);
        let options = self.options;
        let task = self.tasks.spawn(async move { runnable.run(options).await });
        self.running.insert(task.id(), RunningMember { index, task, since: Instant::now() });
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        let due: Vec<(Instant, Index)> = self.restarts.extract_if(.., |(at, _)| *at <= now).collect();
        if !self.is_ending() {
            for (_, index) in due {
                self.start(index);
            }
        }
    }

    /// Begins the end or cuts it short, if ordered.
    fn obey(&mut self, wanted: LoopOrders, stage: Stage) {
        let timeout = self.group.shutdown_timeout;
        if !self.is_ending() && wanted.end >= EndOrder::Finish {
            self.end_until(wanted.deadline.unwrap_or_else(|| Instant::now() + timeout));
        }
        if !self.is_ending() && stage != Stage::Running {
            self.end_until(Instant::now() + timeout);
        }
        if let Stage::StopNow { signal } = stage {
            self.cut(u8::try_from(128 + signal).unwrap_or(u8::MAX));
        }
        if wanted.end == EndOrder::Cut {
            self.cut(CUT_STATUS);
        }
        // A later shutdown may grant more time, but not after a cut.
        if self.is_ending() && self.cut_status.is_none() {
            self.limit = self.limit.max(wanted.deadline);
        }
    }

    fn end_until(&mut self, deadline: Instant) {
        self.limit = Some(deadline);
        self.shutdown = Some(Box::pin(shut_down(&self.group.members, deadline)));
    }

    /// Stops all loops now. Only the first cut counts.
    fn cut(&mut self, status: u8) {
        if self.cut_status.is_some() {
            return;
        }
        self.cut_status = Some(status);
        self.shutdown = None;
        self.limit = Some(Instant::now() + CUT_TIMEOUT);
        for runnable in self.group.loops() {
            runnable.stop_now();
        }
    }

    fn joined(&mut self, joined: Result<(Id, Result<(), LoopError>), JoinError>) {
        let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(RunningMember { index, since, .. }) = self.running.remove(&id) else { return };
        let error = match joined {
            Ok((_, Ok(()))) => return,
            Ok((_, Err(error))) => error,
            // The watchdog aborted the task to restart the loop.
            Err(error) if error.is_cancelled() => return self.restarts.push((Instant::now(), index)),
            Err(error) => {
                let reason = HandlerFailure::of_panic(&*error.into_panic()).message;
                LoopError::Panicked { name: self.name(index), reason }
            }
        };
        self.crashed(index, error, since.elapsed());
    }

    fn name(&self, index: Index) -> String {
        self.group.members[index].runnable.name().to_owned()
    }

    fn crashed(&mut self, index: Index, error: LoopError, lasted: Duration) {
        let policy = self.group.crash;
        self.has_crashed_late |= self.is_ending();
        emit_with(Level::Warn, || Event::LoopCrashed {
            name: self.name(index).into(),
            reason: with_causes(&error).into(),
            then: policy.name(),
        });
        match policy {
            CrashPolicy::StopAll => {
                let name = self.name(index);
                self.crashed.get_or_insert(GroupError::Crashed { name, source: error });
                if !self.is_ending() {
                    self.end_until(Instant::now() + self.group.shutdown_timeout);
                }
            }
            CrashPolicy::Restart(backoff) => {
                let crashes = self.crashes.entry(index).or_default();
                *crashes = if lasted > backoff.longest { 1 } else { crashes.saturating_add(1) };
                let pause = backoff.pause(*crashes, fastrand::f64());
                self.restarts.push((Instant::now() + pause, index));
            }
            CrashPolicy::Ignore => {}
        }
    }

    fn abort_stuck(&mut self, index: Index) {
        let running = self.running.values().find(|running| running.index == index);
        if let Some(running) = running.filter(|_| !self.is_ending()) {
            running.task.abort();
        }
    }

    fn ended(self, in_time: bool) -> Result<GroupEnd, GroupError> {
        if let Some(error) = self.crashed {
            return Err(error);
        }
        let status = self.cut_status.unwrap_or_else(|| u8::from(!in_time || self.has_crashed_late));
        if status != 0 {
            self.group.control.note_cut_short();
        }
        Ok(GroupEnd { is_clean: status == 0, status })
    }
}
