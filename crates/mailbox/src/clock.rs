//! The clocks of mailboxes. Leases in a file use the time since the boot, which nobody can set. The wall
//! clock is for people, and for one other purpose ([`Clock::wall`]). Leases in memory follow tokio's clock,
//! which tests pause.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// The clock of a mailbox. Tests bring clocks of their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time since the boot, including the time in which the machine slept. All processes read the
    /// same value, and it never goes back.
    fn since_boot(&self) -> Duration;

    /// Returns the time of the wall clock. It is shown to people. A mailbox in a file also uses it once after
    /// each boot, to learn how much of each delay has passed.
    fn wall(&self) -> SystemTime;

    /// Returns the id of the boot. Empty on systems that have no such id.
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
        // Systems without this file have no boot id. There, a clock that went back shows that the machine was
        // booted.
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }
}
