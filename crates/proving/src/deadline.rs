//! How long tests wait, and the only place where they poll instead of waiting for an event.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time after which a test considers anything hung, which is far more than a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A moment after which a test gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the usual deadline: [`PATIENCE`] from now.
    pub fn patient() -> Self {
        Self::after(PATIENCE)
    }

    /// Returns a deadline `time` from now.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Returns the time that is left, or `None` once the deadline has passed.
    pub fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Waits until one of the descriptors is readable. Returns `false` if the deadline came first.
    pub fn readable(self, fds: &mut [PollFd<'_>]) -> bool {
        loop {
            let Some(left) = self.left() else { return false };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return true,
                Err(error) => panic!("poll: {error}"),
            }
        }
    }
}

/// What poll reports for a descriptor that is readable or whose other end is gone.
pub const READABLE: PollFlags = PollFlags::IN;

/// Polls until `look` finds something or the deadline passes.
///
/// Use it only if there is no event at all: for a process's state letter, a signal mask, an entry that appears in
/// `/proc`. Wait through a pidfd, a pipe or a watch wherever there is one.
pub fn recheck<T>(deadline: Deadline, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(deadline.left().is_some(), "never came: {what}");
        let_pass(Duration::from_millis(2));
    }
}

/// Sleeps where time itself matters: a random moment for a fault, the age of a hostile process.
#[expect(clippy::disallowed_methods, reason = "there is no event to wait for")]
pub fn let_pass(time: Duration) {
    std::thread::sleep(time);
}
