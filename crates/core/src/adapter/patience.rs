//! How long adapters wait for what they cannot be told of. The error of a call that died with its worker waits for all of this.

use std::time::Duration;

/// For the last answers of a worker that died, which lie in its socket or pipe.
pub const LAST_ANSWERS: Duration = Duration::from_millis(10);

/// For a worker's death after one of its connections broke: that is most often its first sign.
pub const DEATH_AFTER_BREAK: Duration = Duration::from_millis(200);

/// For the caller's own clock to end a call whose deadline a worker saw sooner.
pub const FAST_CLOCK: Duration = Duration::from_secs(1);
