//! Times as the file keeps them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::Clock;

/// Microseconds, of whichever clock.
pub(crate) type Micros = i64;

/// As the file keeps it. What is too long for it never ends.
pub(crate) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// What the file has kept.
pub(crate) fn time(micros: Micros) -> Duration {
    Duration::from_micros(micros.max(0) as u64)
}

pub(crate) fn wall_micros(clock: &dyn Clock) -> Micros {
    clock.wall().duration_since(UNIX_EPOCH).map_or(0, micros)
}

pub(crate) fn wall_time(micros: Micros) -> SystemTime {
    UNIX_EPOCH + time(micros)
}
