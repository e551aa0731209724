//! Pools: how to describe them, operate their workers, and read their status.

pub use snakepit_core::{
    Affinity, CallAtWork, CancelGrace, CircuitScope, CircuitTable, CommandGrowth, LostSessions, Outcomes,
    OutputLine, Pool, PoolHealth, PoolOptions, PoolStatus, ReloadError, Reloaded, SessionInfo, Suspect,
    TaintedPlace, WorkerDuty, WorkerInfo, WorkerLiveness, WorkerStatus,
};
