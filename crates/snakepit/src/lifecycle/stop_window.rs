//! How long the workers of an engine have to end when it stops. This is the only place that decides it.
//!
//! ```text
//! calls drain ──► open ────────────────── half-time ────────────────── end
//!                  │ goodbye to each       │ TERM to whoever is left    │ KILL to whoever is left
//!                  │◄──────────────── cleanup_on_stop_timeout_ms ──────►│
//! ```
//!
//! All workers of all pools share one window. A worker gets TERM before half-time if there is no goodbye to wait for: its
//! adapter has none, or a call of it was cut short. Without `cleanup_on_stop` the window is empty: KILL, at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::waiting::after;

/// The time between the end of the drain and KILL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StopWindow {
    /// When whoever has not heeded the goodbye gets TERM.
    pub(crate) term_at: Instant,
    /// When whoever is left gets KILL.
    pub(crate) kill_at: Instant,
}

impl StopWindow {
    /// A window that opens now. `grace` is [`custody::Config::grace`](crate::custody::Config::grace).
    pub(crate) fn open(grace: Duration) -> Self {
        let now = Instant::now();
        Self { term_at: after(now, grace / 2), kill_at: after(now, grace) }
    }

    /// Whether anybody is asked before he is killed.
    pub(crate) fn asks(self) -> bool {
        self.term_at < self.kill_at
    }

    /// What is left of it.
    pub(crate) fn left(self) -> Duration {
        self.kill_at.saturating_duration_since(Instant::now())
    }
}
