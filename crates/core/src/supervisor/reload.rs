//! A rolling reload: every worker is replaced by one of new code or new settings, or none is, and capacity never dips.
//!
//! ```text
//! old workers are due ──► one of the new generation starts ──► healthy ──► an old one is kept aside ──► … ──► all have lived
//!                                         └──fails, or dies──► the old ones serve again, the new ones leave    for a second:
//!                                                              and the error says why                          the old ones end
//! ```
//!
//! Old code cannot be started again: its file has changed. So who is replaced stays, without calls, until the reload is good. A
//! new worker that somebody else may have ended is started again, a few times.
//!
//! What is about workers and the queue changes when it begins, and back if it fails. What is about calls and sessions changes when it is
//! done: a policy that is switched off forgets what it knows, and a reload that fails must not make it.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Generation;
use super::main_loop::{ReplaceReason, SupervisedWorker, Supervisor};
use crate::pool::PoolOptions;
use crate::telemetry::Event;
use snakepit_policy::restarts::SHORT_LIFE;
use snakepit_policy::sizing::Sizer;

/// How many new workers may be ended from outside in one reload. Nobody can tell code that kills itself from an operator.
const ENDED_FROM_OUTSIDE: usize = 3;

/// What a reload did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reloaded {
    /// How many workers were replaced.
    pub replaced: usize,
    /// The number of the pool's generation now; the first is 1.
    pub generation: u64,
}

/// Why a reload did not come to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A worker of the new code or settings did not start, is not healthy, or died. All workers are those of before.
    #[error("pool {pool} was not reloaded: all its workers stay as they were: {reason}")]
    Aborted {
        /// The pool.
        pool: String,
        /// What was wrong with the new one.
        reason: String,
    },
    /// Another reload is under way.
    #[error("pool {pool} is being reloaded already: wait until that is done")]
    UnderWay {
        /// The pool.
        pool: String,
    },
    /// The new settings are those of another pool.
    #[error("pool {pool} cannot become pool {other}: give the new settings the same name")]
    OtherName {
        /// The pool.
        pool: String,
        /// The name that was given.
        other: String,
    },
    /// The pool stopped meanwhile.
    #[error("the pool has stopped")]
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
    /// What stays if it fails.
    pub(super) before: Arc<Generation>,
    /// The size that it has changed, and who decided about it; none once it was set anew meanwhile.
    pub(super) size_before: Option<(usize, Option<Sizer>)>,
    pub(super) replaced: usize,
    /// How many new workers may have been ended by somebody else.
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
            member.due.get_or_insert_with(|| ReplaceReason::Reload.now());
        }
        self.reload = Some(Reload { before, size_before, replaced: 0, from_outside: 0, reply });
    }

    /// A new worker has failed: the reload, if there is one and it is to be given up.
    pub(super) fn given_up(&mut self, from_outside: bool) -> Option<Reload> {
        self.reload.take_if(|reload| {
            reload.from_outside += usize::from(from_outside);
            !from_outside || reload.from_outside > ENDED_FROM_OUTSIDE
        })
    }

    /// The size of other settings, where they differ: a number that was set by hand stays otherwise. Gives what was there
    /// before, if it was changed.
    fn resize_from(&mut self, before: &PoolOptions, now: &PoolOptions) -> Option<(usize, Option<Sizer>)> {
        // Where the load decides, the number of workers says nothing.
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
        // It may be short of workers for other reasons, and for long, but somebody must have shown that they start.
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

    /// The old ones stay, with the settings that they were started with.
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
            member.due.take_if(|mark| mark.due == ReplaceReason::Reload);
        }
        let _ = reply.send(Err(ReloadError::aborted(&self.shared.name, reason)));
    }
}
