//! Times as the file stores them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::Clock;

/// A time in microseconds, of the boot clock or of the wall clock.
pub(crate) type Micros = i64;

/// Converts a time to the form that the file stores. A time too long for that never ends.
pub(crate) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// Converts a stored time back.
pub(crate) fn time(micros: Micros) -> Duration {
    Duration::from_micros(micros.max(0) as u64)
}

pub(crate) fn wall_micros(clock: &dyn Clock) -> Micros {
    clock.wall().duration_since(UNIX_EPOCH).map_or(0, micros)
}

pub(crate) fn wall_time(micros: Micros) -> SystemTime {
    UNIX_EPOCH + time(micros)
}
