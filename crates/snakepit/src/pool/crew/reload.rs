//! A rolling reload: every worker is replaced by one of new code or new settings, and capacity never dips.
//!
//! ```text
//! old workers are due ──► one of the new generation starts ──► healthy ──► one old one drains ──► … ──► done
//!                                         └──fails──► the rest of the old ones stay, and the error says why
//! ```

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Generation;

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
    /// A worker of the new code or settings did not start, or is not healthy.
    #[error("pool {pool} was not reloaded: {}: {reason}", kept(*.replaced))]
    Aborted {
        /// The pool.
        pool: String,
        /// How many workers had been replaced before; these stay as they are.
        replaced: usize,
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

fn kept(replaced: usize) -> String {
    match replaced {
        0 => "all its workers stay as they were".into(),
        n => format!("{n} workers are new, the others stay as they were"),
    }
}

impl ReloadError {
    pub(super) fn aborted(pool: &str, replaced: usize, reason: &str) -> Self {
        Self::Aborted { pool: pool.into(), replaced, reason: reason.into() }
    }
}

/// A reload that is under way.
#[derive(Debug)]
pub(super) struct Reload {
    /// What stays if it fails.
    pub(super) before: Arc<Generation>,
    pub(super) replaced: usize,
    pub(super) reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}
