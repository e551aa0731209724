//! What hosts can observe: events, logs, spans, traces and metrics.

mod catalog;
mod logging;
#[cfg(feature = "opentelemetry")]
mod propagation;
#[cfg(feature = "metrics")]
mod record;
mod spans;
#[path = "../support/mod.rs"]
mod support;
mod trace;
