//! What time it is: since the boot, which nobody can set, for leases in a file; and by the wall, for people and for one use
//! only ([`Clock::wall`]). Leases in memory follow tokio's clock, which tests pause.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

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

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn boot(&self) -> String {
        // Elsewhere the clock identifies a boot: it starts from zero.
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }
}
