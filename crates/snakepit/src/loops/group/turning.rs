//! The run of a group: loops that end, crash, are restarted, and an end that comes for all of them.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::{CrashPolicy, GroupEnd, GroupError, LoopGroup, Signals, ending};
use crate::lifecycle::{ShutdownCoordinator, Stage};
use crate::loops::watchdog::Watch;
use crate::loops::{End, Failure, LoopError, Orders, RunOptions};
use crate::supervision::jitter::Chance;
use crate::telemetry::{Event, Level, emit_with};

/// After a stop now: what is given back by then, and what is not, is left.
const CUT_LIMIT: Duration = Duration::from_secs(10);

/// Which loop of the group.
type Index = usize;

struct Turning<'a> {
    group: &'a LoopGroup,
    options: RunOptions,
    runs: JoinSet<Result<(), LoopError>>,
    of_task: HashMap<Id, Index>,
    current: HashMap<Index, (AbortHandle, Instant)>,
    /// Loops that are to be run again, and when.
    again: Vec<(Instant, Index)>,
    crashes: HashMap<Index, u32>,
    crashed: Option<GroupError>,
    /// A loop that was to finish has crashed instead: what it had in flight did not complete.
    has_crashed_late: bool,
    ending: Option<BoxFuture<'a, ()>>,
    is_ending: bool,
    /// At which everything that still runs is dropped.
    limit: Option<Instant>,
    cut_by: Option<i32>,
    restarts: mpsc::UnboundedReceiver<Index>,
}

pub(super) async fn run(
    group: &LoopGroup,
    options: RunOptions,
    signals: Signals,
) -> Result<GroupEnd, GroupError> {
    let stages = match signals {
        Signals::Answer => Some(ShutdownCoordinator::install()?.stages()),
        Signals::Leave => None,
    };
    // Bounded by what the loops have in hand: the watchdog tells each snag once.
    let (restart, restarts) = mpsc::unbounded_channel();
    let _watch = match &group.watchdog {
        Some(watchdog) => {
            let loops = group.loops().cloned().collect();
            Some(Watch::start(*watchdog, loops, restart).map_err(GroupError::Watchdog)?)
        }
        None => None,
    };
    let turning = Turning {
        group,
        options,
        runs: JoinSet::new(),
        of_task: HashMap::new(),
        current: HashMap::new(),
        again: Vec::new(),
        crashes: HashMap::new(),
        crashed: None,
        has_crashed_late: false,
        ending: None,
        is_ending: false,
        limit: None,
        cut_by: None,
        restarts,
    };
    turning.until_end(stages).await
}

impl Turning<'_> {
    async fn until_end(
        mut self,
        mut stages: Option<tokio::sync::watch::Receiver<Stage>>,
    ) -> Result<GroupEnd, GroupError> {
        let mut orders = self.group.control.orders();
        let stage = stages.as_ref().map_or(Stage::Running, |stages| *stages.borrow());
        self.obey(*orders.borrow(), stage);
        if self.is_ending {
            // Told before it began: nothing is received.
            return self.ended(true);
        }
        for index in 0..self.group.members.len() {
            self.start(index);
        }
        loop {
            self.group.control.heartbeat().beat();
            let stage = stages.as_mut().map_or(Stage::Running, |stages| *stages.borrow_and_update());
            self.obey(*orders.borrow_and_update(), stage);
            if self.runs.is_empty() && (self.again.is_empty() || self.is_ending) {
                return self.ended(true);
            }
            let now = Instant::now();
            if self.limit.is_some_and(|limit| limit <= now) {
                // What still runs is dropped here. Its leases run out.
                return self.ended(false);
            }
            let due = self.again.iter().map(|(at, _)| *at).filter(|_| !self.is_ending);
            let wake_at = due.chain(self.limit).min();
            tokio::select! {
                biased;
                Some(joined) = self.runs.join_next_with_id(), if !self.runs.is_empty() => self.joined(joined),
                _ = orders.changed() => {}
                () = changed(&mut stages) => {}
                Some(index) = self.restarts.recv() => self.restart(index),
                () = or_pending(&mut self.ending) => self.ending = None,
                () = until(wake_at) => self.start_due(),
            }
        }
    }

    fn start(&mut self, index: Index) {
        let runnable = Arc::clone(&self.group.members[index].runnable);
        let options = self.options;
        let task = self.runs.spawn(async move { runnable.run(options).await });
        self.of_task.insert(task.id(), index);
        self.current.insert(index, (task, Instant::now()));
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Index> =
            self.again.iter().filter(|(at, _)| *at <= now).map(|(_, index)| *index).collect();
        self.again.retain(|(at, _)| *at > now);
        if !self.is_ending {
            for index in due {
                self.start(index);
            }
        }
    }

    /// Begins an end, or makes it a hard one, if that is wanted.
    fn obey(&mut self, wanted: Orders, stage: Stage) {
        let timeout = self.group.shutdown_timeout;
        if !self.is_ending && wanted.end >= End::Finish {
            self.end_until(wanted.deadline.unwrap_or_else(|| Instant::now() + timeout));
        }
        if !self.is_ending && stage != Stage::Running {
            self.end_until(Instant::now() + timeout);
        }
        if let Stage::StopNow { signal } = stage
            && self.cut_by.is_none()
        {
            self.cut_by = Some(signal);
            self.cut();
        }
        if wanted.end == End::Cut && self.cut_by.is_none() {
            self.cut_by = Some(0);
            self.cut();
        }
        // A later shutdown may give it more time, but not after a cut.
        if self.is_ending && self.cut_by.is_none() {
            self.limit = self.limit.max(wanted.deadline);
        }
    }

    fn end_until(&mut self, deadline: Instant) {
        self.is_ending = true;
        self.limit = Some(deadline);
        self.ending = Some(Box::pin(ending::shut_down(&self.group.members, deadline)));
    }

    fn cut(&mut self) {
        self.is_ending = true;
        self.ending = None;
        self.limit = Some(Instant::now() + CUT_LIMIT);
        for runnable in self.group.loops() {
            runnable.stop_now();
        }
    }

    fn joined(&mut self, joined: Result<(Id, Result<(), LoopError>), JoinError>) {
        let id = match &joined {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(index) = self.of_task.remove(&id) else { return };
        let began = self.current.remove(&index).map(|(_, began)| began);
        let error = match joined {
            Ok((_, Ok(()))) => return,
            Ok((_, Err(error))) => error,
            // The watchdog wanted it to be begun anew.
            Err(error) if error.is_cancelled() => {
                return self.again.push((Instant::now(), index));
            }
            Err(error) => {
                let reason = Failure::of_panic(&*error.into_panic()).message;
                LoopError::Panicked { name: self.name(index), reason }
            }
        };
        self.crashed(index, error, began);
    }

    fn name(&self, index: Index) -> String {
        self.group.members[index].runnable.name().to_owned()
    }

    fn crashed(&mut self, index: Index, error: LoopError, began: Option<Instant>) {
        let policy = self.group.crash;
        self.has_crashed_late |= self.is_ending;
        emit_with(Level::Warn, || Event::LoopCrashed {
            name: self.name(index).into(),
            reason: error.to_string().into(),
            then: policy.name(),
        });
        match policy {
            CrashPolicy::StopAll => {
                let name = self.name(index);
                self.crashed.get_or_insert(GroupError::Crashed { name, source: error });
                if !self.is_ending {
                    self.end_until(Instant::now() + self.group.shutdown_timeout);
                }
            }
            CrashPolicy::Restart(backoff) => {
                let lasted = began.map_or(Duration::ZERO, |began| began.elapsed());
                let crashes = self.crashes.entry(index).or_default();
                *crashes = if lasted > backoff.longest { 1 } else { crashes.saturating_add(1) };
                let pause = backoff.pause(*crashes, Chance::draw().number());
                self.again.push((Instant::now() + pause, index));
            }
            CrashPolicy::Ignore => {}
        }
    }

    fn restart(&mut self, index: Index) {
        if let Some((run, _)) = self.current.get(&index)
            && !self.is_ending
        {
            run.abort();
        }
    }

    fn ended(self, in_time: bool) -> Result<GroupEnd, GroupError> {
        if let Some(error) = self.crashed {
            return Err(error);
        }
        let status = match self.cut_by {
            Some(0) => 1,
            Some(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            None => u8::from(!in_time || self.has_crashed_late),
        };
        if status != 0 {
            self.group.control.note_cut_short();
        }
        Ok(GroupEnd { is_clean: status == 0, status })
    }
}

async fn changed(stages: &mut Option<tokio::sync::watch::Receiver<Stage>>) {
    match stages {
        Some(stages) => {
            if stages.changed().await.is_err() {
                // The coordinator was reset: no signal comes any more.
                pending::<()>().await;
            }
        }
        None => pending().await,
    }
}

async fn or_pending(slot: &mut Option<BoxFuture<'_, ()>>) {
    match slot {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
