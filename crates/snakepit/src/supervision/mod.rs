//! What a pool does about its own troubles: every policy is a value that decides, and the crew of the pool acts.
//!
//! Nothing here has a clock, a task or any I/O: each policy is told the time and what happened, and says what follows. So each
//! can be read in one sitting, tested alone and simulated. None of it knows a pool, an adapter or a protocol; see
//! docs/design/2026-11-15-supervision.md.
//!
//! | file | is told | says |
//! |---|---|---|
//! | `restarts` | that a worker failed, or served | when the next one may start |
//! | `retry` | that a call was lost | whether and when it is made again |
//! | `breaker` | how calls ended | whether another may come in |
//! | `quarantine` | of which call a worker died | whether that call is refused |
//! | `taint` | of what a worker died | which slot and device the next one gets |
//! | `liveness` | what is seen of a worker | what it is doing |
//! | `recycling` | a worker's calls, age and memory | whether it is due, and why |
//! | `growth` | how memory grew, and what ran | which command leaks |
//! | `sizing` | who waits and who is idle | how many workers there should be |
//! | `limit` | how long calls take | how many a worker gets at a time |
//!
//! `jitter` is the chance that the first two need; it is handed to them, too.
#![expect(clippy::cast_precision_loss, reason = "what is reckoned here need not be exact beyond 2^52")]

#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod breaker;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once vitals are read"))]
mod growth;
pub(crate) mod jitter;
#[cfg_attr(not(test), expect(dead_code, reason = "the scheduler asks it once a pool can be told to adapt"))]
mod limit;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once vitals are read"))]
pub(crate) mod liveness;
#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod quarantine;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once workers are replaced in turn"))]
mod recycling;
pub(crate) mod restarts;
#[cfg_attr(not(test), expect(dead_code, reason = "decides already; no pool asks it yet"))]
pub(crate) mod retry;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once the number of workers may change"))]
mod sizing;
pub(crate) mod taint;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use breaker::{Breaker, CircuitPhase, CircuitState};
pub use liveness::{Stuck, WhenStuck};
pub use quarantine::{Fingerprint, Quarantine, Suspect};
pub use recycling::{Recycling, Why};
pub use restarts::Restarts;
pub use retry::Retry;
pub use sizing::Sizing;
pub use taint::{Fault, FaultKind, Taint, Tainted};
