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
//! | `liveness` | whether a worker beats, and uses its CPU | whether it is busy, waiting, stuck or stopped |
//! | `recycling` | how long and how much a worker has served | whether it is due to be replaced |
//! | `growth` | how memory grew, and what ran meanwhile | which command leaks |
//! | `sizing` | how long calls wait, and who is idle | how many workers there should be |
//! | `limit` | how latency follows concurrency | how many calls a worker gets at a time |
//!
//! `jitter` is the chance that the first two need; it is handed to them, too.
#![expect(clippy::cast_precision_loss, reason = "what is reckoned here need not be exact beyond 2^52")]

pub(crate) mod breaker;
pub(crate) mod growth;
pub(crate) mod jitter;
pub(crate) mod limit;
pub(crate) mod liveness;
pub(crate) mod quarantine;
pub(crate) mod recycling;
pub(crate) mod restarts;
pub(crate) mod retry;
pub(crate) mod sizing;
pub(crate) mod taint;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use breaker::{Breaker, CircuitPhase, CircuitState};
pub use liveness::{Stuck, WhenStuck};
pub use quarantine::{Fingerprint, Quarantine, Suspect};
pub use recycling::{Recycling, Why};
pub use restarts::Restarts;
pub use retry::{NoRetry, Retry};
pub use sizing::Sizing;
pub use taint::{Fault, FaultKind, Taint, Tainted};
