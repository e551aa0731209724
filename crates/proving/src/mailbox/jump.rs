//! A clock of mailboxes that can be set, for tests.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use snakepit::mailbox::sqlite::{BootClock, Clock};

/// The machine's clocks, moved by as much as a test likes.
#[derive(Debug, Default)]
pub struct JumpClock {
    moved: Mutex<Moved>,
}

#[derive(Clone, Debug, Default)]
struct Moved {
    boot: Duration,
    wall: Duration,
    wall_back: Duration,
    name: Option<String>,
    /// What the machine's clocks said when this one stopped to follow them.
    frozen: Option<(Duration, SystemTime)>,
}

impl JumpClock {
    /// The machine's clocks as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clocks that stand still until time is said to pass.
    pub fn frozen() -> Self {
        let frozen = Some((BootClock.since_boot(), BootClock.wall()));
        Self { moved: Mutex::new(Moved { frozen, ..Moved::default() }) }
    }

    /// The clocks of another boot of the machine, which began only now.
    pub fn of_another_boot(name: &str) -> Self {
        let moved = Moved { name: Some(name.into()), ..Moved::default() };
        Self { moved: Mutex::new(moved) }
    }

    fn change(&self, change: impl FnOnce(&mut Moved)) {
        change(&mut self.moved.lock().expect("nobody panics here"));
    }

    fn moved(&self) -> Moved {
        self.moved.lock().expect("nobody panics here").clone()
    }

    /// So much time passes.
    pub fn pass(&self, time: Duration) {
        self.change(|moved| {
            moved.boot += time;
            moved.wall += time;
        });
    }

    /// Somebody sets the wall clock forward.
    pub fn set_wall_forward(&self, time: Duration) {
        self.change(|moved| moved.wall += time);
    }

    /// Somebody sets the wall clock back.
    pub fn set_wall_back(&self, time: Duration) {
        self.change(|moved| moved.wall_back += time);
    }
}

impl Clock for JumpClock {
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
