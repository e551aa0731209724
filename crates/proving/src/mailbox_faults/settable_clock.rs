//! A mailbox clock that a test can set.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use snakepit::mailbox::sqlite::{BootClock, Clock};

/// The machine's clocks, shifted by a test.
#[derive(Debug, Default)]
pub struct SettableClock {
    moved: Mutex<ClockOffset>,
}

#[derive(Clone, Debug, Default)]
struct ClockOffset {
    boot: Duration,
    wall: Duration,
    wall_back: Duration,
    name: Option<String>,
    /// The machine's clocks when this clock stopped following them.
    frozen: Option<(Duration, SystemTime)>,
}

impl SettableClock {
    /// Returns the machine's clocks, not shifted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns clocks that stand still until [`SettableClock::pass`].
    pub fn frozen() -> Self {
        let frozen = Some((BootClock.since_boot(), BootClock.wall()));
        Self { moved: Mutex::new(ClockOffset { frozen, ..ClockOffset::default() }) }
    }

    /// Returns the clocks after another boot of the machine.
    pub fn of_another_boot(name: &str) -> Self {
        let moved = ClockOffset { name: Some(name.into()), ..ClockOffset::default() };
        Self { moved: Mutex::new(moved) }
    }

    fn change(&self, change: impl FnOnce(&mut ClockOffset)) {
        change(&mut self.moved.lock().expect("the lock is not poisoned"));
    }

    fn moved(&self) -> ClockOffset {
        self.moved.lock().expect("the lock is not poisoned").clone()
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.change(|moved| {
            moved.boot += time;
            moved.wall += time;
        });
    }

    /// Sets the wall clock forward.
    pub fn set_wall_forward(&self, time: Duration) {
        self.change(|moved| moved.wall += time);
    }

    /// Sets the wall clock back.
    pub fn set_wall_back(&self, time: Duration) {
        self.change(|moved| moved.wall_back += time);
    }
}

impl Clock for SettableClock {
    fn since_boot(&self) -> Duration {
        let moved = self.moved();
        moved.frozen.map_or_else(|| BootClock.since_boot(), |(boot, _)| boot) + moved.boot
    }

    fn wall(&self) -> SystemTime {
        let moved = self.moved();
        moved.frozen.map_or_else(|| BootClock.wall(), |(_, wall)| wall) + moved.wall - moved.wall_back
    }

    fn boot(&self) -> String {
        self.moved().name.unwrap_or_else(|| BootClock.boot())
    }
}
