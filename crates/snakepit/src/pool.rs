//! Pools: what one does with its workers, and what it tells about itself.

pub use snakepit_core::{
    Affinity, CallAtWork, CancelGrace, CircuitScope, CircuitTable, CommandGrowth, LostSessions, Outcomes,
    OutputLine, Pool, PoolHealth, PoolOptions, PoolStatus, ReloadError, Reloaded, SessionInfo, Suspect,
    TaintedPlace, WorkerDuty, WorkerInfo, WorkerLiveness, WorkerStatus,
};
