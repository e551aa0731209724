//! What hosts can observe: events, logs, spans, traces and metrics.

mod events;
mod logging;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod reference_page;
mod spans;
#[path = "../support/mod.rs"]
mod support;
mod traces;
