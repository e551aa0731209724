//! The time that the workers of an engine have to end when it stops. It is decided only here.
//!
//! ```text
//! calls drain ──► open ────────────────── half-time ────────────────── end
//!                  │ terminate each        │ TERM to the rest           │ KILL to the rest
//!                  │◄──────────────── cleanup_on_stop_timeout_ms ──────►│
//! ```
//!
//! All workers of all pools share one window. In its first half, adapters ask workers to exit. A worker gets TERM before
//! half-time if there is nothing to wait for: its adapter cannot ask it, or one of its calls was cut short. Without `cleanup_on_stop` the window is empty, and
//! workers get KILL at once.

use std::time::Duration;

use tokio::time::Instant;

use snakepit_policy::time::after;

/// The part of the window that passes before TERM. The rest belongs to the workers' handlers of TERM.
const EXIT_PART: f64 = 0.5;

/// The time between the end of the drain and KILL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StopWindow {
    /// When the workers that have not exited by themselves get TERM.
    pub term_at: Instant,
    /// When the workers that are left get KILL.
    pub kill_at: Instant,
}

impl StopWindow {
    /// Opens a window now. `grace` comes from [`custody::CustodyOptions::grace`](crate::custody::CustodyOptions::grace).
    pub fn open(grace: Duration) -> Self {
        let now = Instant::now();
        Self { term_at: after(now, grace.mul_f64(EXIT_PART)), kill_at: after(now, grace) }
    }

    /// Reports whether workers are asked to exit, or get TERM, before KILL.
    pub(crate) fn asks(self) -> bool {
        self.term_at < self.kill_at
    }

    /// Returns the time until KILL.
    pub fn left(self) -> Duration {
        self.kill_at.saturating_duration_since(Instant::now())
    }
}
