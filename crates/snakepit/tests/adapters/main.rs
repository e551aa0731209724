//! Adapters with real worker processes, each alone and all against one contract.

#[cfg(feature = "conformance")]
mod conformance;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "http")]
mod http;
mod javascript;
mod mock;
#[cfg(feature = "announce")]
mod ready_line;
#[cfg(feature = "stdio")]
mod stdio;
#[path = "../support/mod.rs"]
mod support;
mod transport;
