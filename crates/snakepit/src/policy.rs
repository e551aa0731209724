//! The decisions of supervision: when a worker is started again, a call is tried again, a command is refused, a pool grows.

pub use snakepit_core::{
    Breaker, CircuitPhase, CircuitState, Fault, FaultKind, Fingerprint, NoRetry, Quarantine, Recycling,
    Restarts, Retry, Sizing, Stuck, SuspectCall, Taint, Tainted, WhenStuck, Why,
};
