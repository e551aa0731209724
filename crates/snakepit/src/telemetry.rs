//! The events of an engine: one [catalog](CATALOG), delivered in three ways.
//!
//! - as `tracing` events of the target `snakepit`, with a constant message and typed fields, and a span for each call;
//! - as `metrics` counters, gauges and histograms, with the feature of that name;
//! - to subscribers: [`subscribe`].
//!
//! ```
//! use std::time::Duration;
//! let mut events = snakepit::telemetry::subscribe();
//! if let Some(event) = events.next_within(Duration::from_millis(1)) {
//!     println!("{} {:?}", event.name(), event.fields());
//! }
//! ```

pub use snakepit_telemetry::{
    CATALOG, Event, EventEntry, FieldEntry, FieldValue, Level, LogLevel, Logging, MEASURES, Measure,
    Subscription, TraceContext, TraceError, observe, subscribe, subscribe_to,
};
