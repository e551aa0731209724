//! How long this thread waits for a lock of the file that another process holds, and how it waits.
//!
//! SQLite's own wait sleeps for 1, 2, 5, 10 and up to 100 ms. A transaction takes less than one of these steps, so with
//! several processes most of them would sleep while the file is free. This wait starts with microseconds.

use std::cell::Cell;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// The first pauses between two tries, in microseconds; then it stays with the last. Zero lets others run.
const PAUSES: [u64; 9] = [0, 0, 20, 50, 50, 100, 100, 200, 500];

thread_local! {
    static PATIENCE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static BEGAN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Does something on this thread that waits no longer than this for others.
pub(super) fn within<T>(patience: Duration, act: impl FnOnce() -> T) -> T {
    let before = PATIENCE.replace(patience);
    let done = act();
    PATIENCE.set(before);
    done
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// SQLite's busy handler: waits a little, and says whether to try again.
pub(super) fn wait(tries: i32) -> bool {
    if tries == 0 {
        BEGAN.set(now());
    } else if now().saturating_sub(BEGAN.get()) >= PATIENCE.get() {
        return false;
    }
    let step = usize::try_from(tries).unwrap_or(0).min(PAUSES.len() - 1);
    match PAUSES[step] {
        0 => std::thread::yield_now(),
        micros => {
            let pause = Timespec { tv_sec: 0, tv_nsec: micros as i64 * 1000 };
            let _ = poll(&mut [], Some(&pause));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{now, wait, within};

    #[test]
    fn the_wait_ends_when_the_patience_does() {
        let patience = Duration::from_millis(30);
        let began = now();
        let tries = within(patience, || (0..1_000_000).take_while(|tries| wait(*tries)).count());
        let took = now().saturating_sub(began);
        assert!(took >= patience, "{took:?}");
        assert!(tries > 10, "{tries} tries: the pauses are too long");
    }
}
