//! Pools of external worker processes for a Rust host: one file of Python, one line of Rust.
//!
//! ```no_run
//! use snakepit::{Pool, Snakepit, args};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pit = Snakepit::builder().pool(Pool::python("worker.py").workers(4)).start().await?;
//! let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
//! # Ok(()) }
//! ```
//!
//! A call travels `call` → `pool` → `worker` → `adapter` → `transport` → Python. What holds the processes, and ends them
//! when the host is gone, is [`custody`].
#![forbid(unsafe_code)]

pub mod adapter;
mod call;
mod causes;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
pub mod environment;
#[cfg(feature = "evals")]
pub mod evals;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod hardware;
mod harmless;
pub mod lifecycle;
mod logging;
#[cfg(feature = "loops")]
pub mod loops;
#[cfg(feature = "mailbox")]
pub mod mailbox;
#[cfg(any(feature = "config", feature = "loops"))]
mod nearest;
mod pit;
mod pool;
mod supervision;
pub mod telemetry;
mod tool;
mod transport;
pub mod value;
#[cfg(all(test, target_os = "linux"))]
mod watching;
mod worker;

pub use snakepit_custody as custody;

#[cfg(feature = "grpc")]
pub use adapter::grpc::GrpcWorker;
pub use adapter::mock::Mock;
pub use adapter::python::PythonWorker;
pub use adapter::{Adapter, StartError};
pub use call::ticket::Progress;
pub use call::{
    Call, CallBuilder, CallError, CallId, CallStream, Chain, Input, Link, MAX_NESTING, Map, MapBuilder,
    MapInOrder, Portion, RemoteError, StreamBuilder,
};
#[cfg(feature = "config")]
pub use config::{Config, ConfigError};
#[cfg(all(feature = "config", feature = "loops", feature = "sqlite"))]
pub use config::{LoopConfig, ServiceConfig};
pub use hardware::{Gpus, Threads};
pub use harmless::harmless;
pub use lifecycle::{ExitMode, Script, ScriptError, ShutdownCoordinator, StopMode, script};
pub use logging::{LogLevel, Logging};
pub use pit::{Builder, EngineError, Snakepit};
pub use pool::{
    Affinity, CallAtWork, CancelGrace, CircuitScope, CircuitTable, CommandGrowth, LostSessions, Outcomes,
    Pool, PoolEvent, PoolEvents, PoolRef, PoolStats, PoolStatus, ReloadError, Reloaded, SessionInfo,
    TaintedPlace, WorkerStats, WorkerStatus,
};
pub use supervision::{
    Breaker, CircuitPhase, CircuitState, Fault, FaultKind, Fingerprint, NoRetry, Quarantine, Recycling,
    Restarts, Retry, Sizing, Stuck, Suspect, Taint, Tainted, WhenStuck, Why,
};
pub use tool::{ToolAnswer, ToolContext};
pub use value::Value;
pub use worker::{Autopsy, OutputLine, Verdict};
