//! What time it is for leases: since the boot, which nobody can set; and by the wall, for people and for one use only
//! ([`Clock::wall`]).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Microseconds, of whichever clock.
pub(crate) type Micros = i64;

/// Where a mailbox reads the time. Tests have clocks of their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time since the boot, the machine's sleep included: all processes read the same, and it only rises.
    fn since_boot(&self) -> Duration;

    /// The wall clock: told to people, and used once after a boot, to see how much of a delay has passed meanwhile.
    fn wall(&self) -> SystemTime;

    /// Which boot this is. Empty where the system does not say.
    fn boot(&self) -> String;
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn since_boot(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let now = clock_gettime(ClockId::Boottime);
        #[cfg(not(target_os = "linux"))]
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn boot(&self) -> String {
        // Elsewhere the clock identifies a boot: it starts from zero.
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }
}

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
