//! Pools: how to describe them, operate their workers, and read their status.

pub use snakepit_core::{
    Affinity, CallAtWork, CancelGrace, CircuitRow, CircuitScope, CircuitTable, CommandGrowth, HealthAnswer,
    LostSessions, Outcomes, OutputLine, OutputStream, Pool, PoolHealth, PoolOptions, PoolSettings,
    PoolStatus, ReloadError, Reloaded, SessionInfo, Suspect, TaintedSlot, WorkerDuty, WorkerInfo,
    WorkerLiveness, WorkerOutput, WorkerSlot, WorkerStatus,
};
