//! Policies: each decides one thing about a pool from what it is told, and acts on nothing.
//!
//! No I/O, no task and no clock in here: whoever asks says what time it is. `pool/` asks and acts; see
//! docs/design/2026-11-15-supervision.md.
#![expect(clippy::cast_precision_loss, reason = "what is reckoned here need not be exact beyond 2^52")]

#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once vitals are read"))]
mod growth;
#[cfg_attr(not(test), expect(dead_code, reason = "the scheduler asks it once a pool can be told to adapt"))]
mod limit;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once vitals are read"))]
mod liveness;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once workers are replaced in turn"))]
mod recycling;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew asks it once the number of workers may change"))]
mod sizing;
#[cfg(test)]
mod tests;

pub use liveness::{Stuck, WhenStuck};
pub use recycling::{Recycling, Why};
pub use sizing::Sizing;
