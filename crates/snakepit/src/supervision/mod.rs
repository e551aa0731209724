//! What a pool does about its own troubles: every policy is a value that decides, and the crew of the pool acts.
//!
//! Nothing here has a clock, a task or any I/O: each policy is told the time and what happened, and says what follows. So each
//! can be read in one sitting, tested alone and simulated. None of it knows a pool, an adapter or a protocol.
//!
//! | file | is told | says |
//! |---|---|---|
//! | `restarts` | that a worker failed, or served | when the next one may start |
//! | `retry` | that a call was lost | whether and when it is made again |
//! | `breaker` | how calls ended | whether another may come in |
//! | `quarantine` | of which call a worker died | whether that call is refused |
//! | `taint` | of what a worker died | which slot and device the next one gets |
//!
//! `jitter` is the chance that the first two need; it is handed to them, too.

#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod breaker;
pub(crate) mod jitter;
#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod quarantine;
pub(crate) mod restarts;
#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod retry;
pub(crate) mod taint;
#[cfg(test)]
mod testing;

pub use breaker::{Breaker, CircuitPhase, CircuitState};
pub use quarantine::{Fingerprint, Quarantine, Suspect};
pub use restarts::Restarts;
pub use retry::Retry;
pub use taint::{Fault, FaultKind, Taint, Tainted};
