//! Adapters: how one kind of worker is started, called and ended.
//!
//! The engine knows no protocols; it knows the trait [`Adapter`]. A new adapter is a page of code: see
//! `examples/adapter.rs`.

pub use snakepit_adapters::Program;
#[cfg(feature = "grpc")]
pub use snakepit_adapters::grpc::{self, GrpcWorker};
#[cfg(feature = "http")]
pub use snakepit_adapters::http;
pub use snakepit_adapters::mock::{self, Mock};
pub use snakepit_adapters::python::{self, PythonWorker};
#[cfg(feature = "announce")]
pub use snakepit_adapters::ready_line;
#[cfg(feature = "stdio")]
pub use snakepit_adapters::stdio;
pub use snakepit_core::adapter::{
    Adapter, AtWork, BadHeader, Batching, CallAdmission, CallSettlement, CallStage, CancelStage, Credit,
    CreditUnit, EndedCalls, FrameKind, Handle, HeldCall, HeldCalls, Introduction, ItemDelivery,
    ProtocolFault, ReadinessHint, Reason, ReplaceReason, Spawner, StartError, StartKnowledge, WorkerChannel,
    host_tools, is_reserved, timeouts,
};
