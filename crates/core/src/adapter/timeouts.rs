//! How long adapters wait for events that nothing announces. The error of a call that died with its worker is delayed
//! by these times.

use std::time::Duration;

/// For the last answers of a worker that died, which are still in its socket or pipe.
pub const LAST_ANSWERS: Duration = Duration::from_millis(10);

/// For the death of a worker after one of its connections broke. A broken connection is usually the first sign of the
/// death.
pub const DEATH_AFTER_BREAK: Duration = Duration::from_millis(200);

/// For the caller's own timer to end a call whose deadline the worker noticed first.
pub const FAST_CLOCK: Duration = Duration::from_secs(1);
