//! A clock that all processes share, and rates.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Returns the seconds of a clock that reads the same in every process of the machine.
pub fn shared_seconds() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the operations per second since `began`.
pub fn rate(operations: usize, began: Instant) -> f64 {
    operations as f64 / began.elapsed().as_secs_f64()
}
