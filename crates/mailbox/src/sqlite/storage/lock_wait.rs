//! How a thread waits for a lock that another process holds on the file.
//!
//! SQLite's own wait sleeps for 1, 2, 5, 10 and up to 100 ms. A transaction takes less time than one of these
//! sleeps, so most of the waiting processes would sleep while the file is free. This wait starts with
//! microseconds.
//!
//! SQLite takes several locks for one transaction, and processes that try at the same time block each other.
//! So processes first take turns by a lock that costs one system call. The turn is only a hint: a process
//! that does not get it in time continues without it.

use std::cell::Cell;
use std::fs::File;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// The pauses between tries, in microseconds. Zero only yields. The last pause repeats.
const PAUSES: [u64; 10] = [0, 0, 20, 20, 20, 20, 50, 100, 200, 500];
/// How long a process waits for its turn. Any turn is shorter, unless the process that has it was stopped.
const TURN_TIMEOUT: Duration = Duration::from_millis(50);

thread_local! {
    static TIMEOUT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static BEGAN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function on this thread that waits at most `timeout` for the locks of other processes.
pub(crate) fn within<T>(timeout: Duration, act: impl FnOnce() -> T) -> T {
    let before = TIMEOUT.replace(timeout);
    let done = act();
    TIMEOUT.set(before);
    done
}

/// Makes short sleeps of this thread exact. By default, Linux adds up to 50 microseconds.
pub(crate) fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Reports whether this thread has waited for another process since the last call of this function.
pub(crate) fn has_waited() -> bool {
    HAS_WAITED.replace(false)
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Waits a little and reports whether to try again. This is SQLite's busy handler.
pub(crate) fn wait(tries: i32) -> bool {
    wait_within(tries, TIMEOUT.get())
}

fn wait_within(tries: i32, timeout: Duration) -> bool {
    HAS_WAITED.set(true);
    if tries == 0 {
        BEGAN.set(now());
    } else if now().saturating_sub(BEGAN.get()) >= timeout {
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

/// The turn of this process to write to the file. It ends when it is dropped.
pub(crate) struct WriteTurn<'a>(Option<&'a File>);

impl<'a> WriteTurn<'a> {
    /// Waits for the turn, at most for [`TURN_TIMEOUT`].
    pub(crate) fn take(lock: Option<&'a File>) -> Self {
        let timeout = TIMEOUT.get().min(TURN_TIMEOUT);
        Self(lock.filter(|lock| lock_within(lock, timeout)))
    }
}

fn lock_within(lock: &File, timeout: Duration) -> bool {
    for tries in 0.. {
        if lock.try_lock().is_ok() {
            return true;
        }
        if !wait_within(tries, timeout) {
            break;
        }
    }
    false
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            let _ = lock.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{WriteTurn, has_waited, now, wait, within};

    #[test]
    fn the_wait_ends_with_its_timeout() {
        let timeout = Duration::from_millis(30);
        let began = now();
        let tries = within(timeout, || (0..1_000_000).take_while(|tries| wait(*tries)).count());
        let took = now().saturating_sub(began);
        assert!(took >= timeout, "{took:?}");
        assert!(tries > 10, "{tries} tries: the pauses are too long");
    }

    #[test]
    fn a_process_that_gets_no_turn_to_write_continues_without_it() {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let open =
            || std::fs::File::create(dir.path().join("turn")).unwrap_or_else(|error| panic!("{error}"));
        let (mine, other) = (open(), open());
        has_waited();
        let timeout = Duration::from_millis(20);
        let turn = WriteTurn::take(Some(&other));
        assert!(turn.0.is_some() && !has_waited(), "nobody else has it");
        let began = now();
        assert!(within(timeout, || WriteTurn::take(Some(&mine))).0.is_none(), "somebody else has it");
        assert!(now().saturating_sub(began) >= timeout && has_waited());
        drop(turn);
        assert!(WriteTurn::take(Some(&mine)).0.is_some(), "it was given back");
    }
}
