//! The policies of supervision: when to restart a worker, retry a call, refuse a command, or grow a pool.

pub use snakepit_core::{
    Breaker, CircuitPhase, CircuitState, CountedFailures, Fault, FaultKind, Fingerprint, NoRetry, Quarantine,
    RecycleReason, Recycling, Restarts, Retry, Sizing, Stuck, SuspectCall, Taint, Tainted, WhenStuck,
};
