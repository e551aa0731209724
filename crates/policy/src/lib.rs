//! What a pool does about failures, load and age. Each policy makes a decision, and the pool's supervisor acts on it.
//!
//! A policy has no clock, no task and no I/O. It takes plain data, including the time, and returns a decision, so you
//! can read, test and simulate each policy by itself. No policy knows pools, workers, calls or adapters. See
//! docs/design/2026-11-15-supervision.md.
//!
//! | file | input | decision |
//! |---|---|---|
//! | `restarts` | workers that failed, and workers that served | when the next worker may start |
//! | `retry` | a lost call | whether and when to retry it |
//! | `breaker` | how calls ended | whether to admit the next call |
//! | `quarantine` | the calls that a dead worker had begun | whether to refuse such a call |
//! | `taint` | the cause of a worker's death | which slot and device the next worker gets |
//! | `liveness` | heartbeats and CPU time | whether a worker is busy, waiting, stuck or stopped |
//! | `recycling` | calls, age, idle time and memory of a worker | whether the worker is due for replacement |
//! | `memory_growth` | memory growth, and the commands that ran meanwhile | which command leaks |
//! | `sizing` | how long calls wait, and how many workers idle | how many workers the pool should have |
//! | `limit` | how latency depends on concurrency | how many calls a worker gets at a time |
//!
//! `jitter` computes the random pauses of `restarts` and `retry`. `time` adds times without overflow.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(clippy::cast_precision_loss, reason = "nothing computed here needs to be exact beyond 2^52")]

pub mod breaker;
pub mod jitter;
pub mod limit;
pub mod liveness;
pub mod memory_growth;
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
pub use recycling::{RecycleReason, Recycling};
pub use restarts::{CountedFailures, Restarts};
pub use retry::{NoRetry, Retry};
pub use sizing::Sizing;
pub use taint::{Fault, FaultKind, Taint, Tainted};
