//! What a pool does about failures, load and age: each policy decides, and the pool's supervisor acts.
//!
//! No policy has a clock, a task or I/O: plain data comes in, the time included, and a decision goes out. So each policy can be
//! read alone, tested alone and simulated. None knows a pool, a worker, a call or an adapter; see
//! docs/design/2026-11-15-supervision.md.
//!
//! | file | input | decision |
//! |---|---|---|
//! | `restarts` | workers that failed, and workers that served | when the next worker may start |
//! | `retry` | a lost call | whether and when it is made again |
//! | `breaker` | how calls ended | whether the next call is admitted |
//! | `quarantine` | the calls that a dead worker had begun | whether such a call is refused |
//! | `taint` | what a worker died of | which slot and device the next worker gets |
//! | `liveness` | heartbeats and CPU time | whether a worker is busy, waiting, stuck or stopped |
//! | `recycling` | calls, age, idleness and memory of a worker | whether it is due to be replaced |
//! | `growth` | how memory grew while which commands ran | which command leaks |
//! | `sizing` | how long calls wait, and how many workers idle | how many workers there should be |
//! | `limit` | how latency follows concurrency | how many calls a worker gets at a time |
//!
//! `jitter` has the random pauses of `restarts` and `retry`; `time` has arithmetic on times.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(clippy::cast_precision_loss, reason = "nothing computed here needs to be exact beyond 2^52")]

pub mod breaker;
pub mod growth;
pub mod jitter;
pub mod limit;
pub mod liveness;
pub mod quarantine;
pub mod recycling;
pub mod restarts;
pub mod retry;
pub mod sizing;
pub mod taint;
#[cfg(test)]
mod tests;
pub mod time;

pub use breaker::{Breaker, CircuitPhase, CircuitState};
pub use liveness::{Liveness, Stuck, WhenStuck};
pub use quarantine::{Fingerprint, Quarantine, SuspectCall};
pub use recycling::{Recycling, Why};
pub use restarts::{CountedFailures, Restarts};
pub use retry::{NoRetry, Retry};
pub use sizing::Sizing;
pub use taint::{Fault, FaultKind, Taint, Tainted};
