//! Waits for a descriptor, with a time limit.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits for a descriptor. Returns whether it became ready in time.
pub(crate) fn ready_within(fd: &impl AsFd, flags: PollFlags, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timespec = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, flags)], Some(&timespec)) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(ready) => return ready > 0,
        }
    }
}
