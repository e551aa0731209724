//! Pools: what one does with its workers, and what it tells about itself.

pub use snakepit_core::{
    Affinity, CallAtWork, CancelGrace, CircuitScope, CircuitTable, CommandGrowth, LostSessions, Outcomes,
    OutputLine, Pool, PoolHealth, PoolOptions, PoolStats, PoolStatus, ReloadError, Reloaded, SessionInfo,
    Suspect, TaintedPlace, WorkerDuty, WorkerLiveness, WorkerStats, WorkerStatus,
};
