//! A rolling reload: every worker is replaced by one with new code or new settings, or none is. Capacity never drops.
//!
//! ```text
//! old workers are due ──► one of the new generation starts ──► healthy ──► an old one is kept aside ──► … ──► all have lived
//!                                         └──fails, or dies──► the old ones serve again, the new ones leave    for a second:
//!                                                              and the error says why                          the old ones end
//! ```
//!
//! Old code cannot be started again, because its file has changed. So replaced workers stay, without calls, until the
//! reload has succeeded. A new worker that may have been ended from outside is started again, a few times.
//!
//! Settings of workers and the queue change when the reload begins, and change back if it fails. Settings of calls and
//! sessions change when the reload is done: a policy that is switched off discards what it knows, and a reload that
//! fails must not cause that.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Generation;
use super::main_loop::{ReplaceMark, SupervisedWorker, Supervisor};
use crate::adapter::ReplaceReason;
use crate::options::PoolOptions;
use crate::telemetry::Event;
use snakepit_policy::restarts::SHORT_LIFE;
use snakepit_policy::sizing::Sizer;

/// How many new workers may be ended from outside in one reload. Code that kills itself looks the same as an operator.
const ENDED_FROM_OUTSIDE: usize = 3;

/// The result of a reload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reloaded {
    /// The number of workers that were replaced.
    pub replaced: usize,
    /// The pool's generation after the reload; the first is 1.
    pub generation: u64,
}

/// Why a reload failed.
///
/// ```no_run
/// use snakepit::pool::ReloadError;
///
/// # async fn example(pool: snakepit::Pool) -> Result<(), ReloadError> {
/// match pool.reload().await {
///     Ok(reloaded) => println!("generation {} serves", reloaded.generation),
///     Err(ReloadError::Aborted { reason, .. }) => eprintln!("the old code still serves: {reason}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A worker with the new code or settings did not start, was not healthy, or died. The old workers serve again.
    #[error("pool {pool} was not reloaded, and its old workers go on: {reason}")]
    Aborted {
        /// The name of the pool.
        pool: String,
        /// What was wrong with the new worker.
        reason: String,
    },
    /// Another reload is under way.
    #[error("pool {pool} is already being reloaded: wait until that is done")]
    UnderWay {
        /// The name of the pool.
        pool: String,
    },
    /// The new settings have the name of another pool.
    #[error("pool {pool} cannot become pool {other}: give the new settings the same name")]
    OtherName {
        /// The name of the pool.
        pool: String,
        /// The name in the new settings.
        other: String,
    },
    /// The pool stopped during the reload.
    #[error("the pool has stopped, so it was not reloaded")]
    Stopped,
}

impl ReloadError {
    pub(super) fn aborted(pool: &str, reason: &str) -> Self {
        Self::Aborted { pool: pool.into(), reason: reason.into() }
    }
}

/// A reload that is under way.
#[derive(Debug)]
pub(super) struct Reload {
    /// The generation that is restored if the reload fails.
    pub(super) before: Arc<Generation>,
    /// The target and the sizer before the reload changed them. `None` if it did not, or if they were set again
    /// meanwhile.
    pub(super) size_before: Option<(usize, Option<Sizer>)>,
    pub(super) replaced: usize,
    /// The number of new workers that may have been ended from outside.
    from_outside: usize,
    pub(super) reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

impl Supervisor {
    pub(super) fn begin_reload(
        &mut self,
        pool: Option<Box<PoolOptions>>,
        reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
    ) {
        if self.reload.is_some() {
            let _ = reply.send(Err(ReloadError::UnderWay { pool: self.shared.name.to_string() }));
            return;
        }
        let before = Arc::clone(&self.generation);
        let config = pool.map_or_else(|| Arc::clone(&before.config), |pool| Arc::new(pool.settled()));
        let size_before = self.resize_from(&before.config, &config);
        self.adopt(Generation::new(self.next_generation, config));
        self.next_generation += 1;
        for member in self.serving.values_mut() {
            member.due.get_or_insert_with(|| ReplaceMark::now(ReplaceReason::Reloaded));
        }
        self.reload = Some(Reload { before, size_before, replaced: 0, from_outside: 0, reply });
    }

    /// Counts the failure of a new worker. Returns the reload if it must be given up.
    pub(super) fn given_up(&mut self, from_outside: bool) -> Option<Reload> {
        self.reload.take_if(|reload| {
            reload.from_outside += usize::from(from_outside);
            !from_outside || reload.from_outside > ENDED_FROM_OUTSIDE
        })
    }

    /// Applies the size of the new settings if it differs from that of the old ones. Otherwise a size that was set
    /// explicitly stays. Returns the previous size if it was changed.
    fn resize_from(&mut self, before: &PoolOptions, now: &PoolOptions) -> Option<(usize, Option<Sizer>)> {
        // If the load decides, the number of workers has no effect.
        if before.sizing == now.sizing && (now.sizing.is_some() || before.workers == now.workers) {
            return None;
        }
        let was = (self.target, self.sizer.take());
        match now.sizing {
            Some(sizing) => self.scale_by(sizing),
            None => self.scale(now.workers),
        }
        Some(was)
    }

    fn adopt(&mut self, generation: Arc<Generation>) {
        let config = &generation.config;
        self.shared.adopt(config);
        self.restarts.adopt(config.restarts);
        self.slots.adopt(&config.taint, config.devices.iter().cloned());
        self.generation = generation;
    }

    pub(super) fn finish_reload(&mut self) {
        let is_old = |number: u64| number != self.generation.number;
        // The pool may be short of workers for other reasons, and for long, but at least one worker must have shown
        // that new workers start.
        let has_lived = |member: &SupervisedWorker| member.worker.ready_at.elapsed() >= SHORT_LIFE;
        let is_proved = |member: &SupervisedWorker| !is_old(member.worker.generation) && has_lived(member);
        let done = self.serving.len() >= self.target().min(1)
            && self.serving.values().all(is_proved)
            && (self.starting.is_empty() || self.serving.len() >= self.target())
            && !self.starting.values().any(|number| is_old(*number));
        if done && let Some(Reload { replaced, reply, .. }) = self.reload.take() {
            self.let_kept_go();
            let config = Arc::clone(&self.generation.config);
            self.shared.adopt_policies(&config);
            self.shared.sessions.adopt(config.session_ttl, config.max_sessions);
            self.end_sessions();
            let generation = self.generation.number;
            self.shared.announce(|pool| Event::PoolReloaded { pool, generation });
            let _ = reply.send(Ok(Reloaded { replaced, generation }));
        }
    }

    /// Restores the old workers, with the settings that they were started with.
    pub(super) fn abort_reload(&mut self, reload: Reload, reason: &str) {
        let Reload { before, size_before, reply, .. } = reload;
        self.shared.announce(|pool| Event::PoolReloadAborted { pool, reason: reason.into() });
        if let Some((target, sizer)) = size_before {
            self.resize(target);
            self.sizer = sizer;
        }
        self.generation.is_dropped.send_replace(true);
        self.restore_kept();
        self.adopt(before);
        for member in self.serving.values_mut() {
            member.due.take_if(|mark| mark.due == ReplaceReason::Reloaded);
        }
        let _ = reply.send(Err(ReloadError::aborted(&self.shared.name, reason)));
    }
}
