//! Why a pool has no worker for a call.

use std::sync::Arc;
use std::time::Duration;

/// The reason shown for a pool that was scaled to 0 workers.
pub(crate) const SCALED_TO_ZERO: &str = "it was scaled to 0 workers: call scale(n) to have some";

/// Why a pool has no worker for a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoWorkersReason {
    /// The pool was scaled to 0 workers.
    #[error("{SCALED_TO_ZERO}")]
    ScaledToZero,
    /// Not all workers became ready in time.
    #[error("not all workers were ready within {after:?}, and none has failed: allow more time")]
    NotReady {
        /// The time that they had.
        after: Duration,
    },
    /// The last worker could not be started, died, or cannot serve at the moment.
    #[error("{0}")]
    Failed(Arc<str>),
}
