//! The events of an engine: one [catalog](CATALOG), delivered in three ways.
//!
//! - as `tracing` events of the target `snakepit`, with a constant message and typed fields, and a span for each call;
//! - as `metrics` counters, gauges and histograms, with the feature of that name;
//! - to subscribers: [`subscribe`].
//!
//! Owns the list of events, their delivery ([`Logging`] decides how much reaches `tracing`), and [the
//! trace](TraceContext) that a call belongs to. Knows no pool and no mailbox: code that has something to report calls
//! [`emit`], which costs almost nothing without listeners. Users get these types from the crate `snakepit`. An event
//! passes through these files in this order:
//!
//! - `catalog.rs`: the list of events. `define.rs` turns it into an enum, and `field.rs` has the types of fields.
//! - `custody.rs`: converts events of custody to events of the catalog.
//! - `logging.rs`: how much reaches `tracing`. `logging/` has a console, and a filter for the libraries behind gRPC.
//! - `measures.rs`, `record.rs`: the list of metrics, and how events become metrics.
//! - `subscription.rs`: bounded queues for subscribers of the process or of one pool.
//! - `trace.rs`, `propagation.rs`: W3C trace context, and how it reaches calls and tools.
//!
//! ```
//! use std::time::Duration;
//! let mut events = snakepit::telemetry::subscribe();
//! if let Some(event) = events.next_within(Duration::from_millis(1)) {
//!     println!("{} {:?}", event.name(), event.fields());
//! }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod catalog;
mod custody;
mod define;
mod field;
pub mod logging;
mod measures;
mod propagation;
#[cfg(feature = "metrics")]
mod record;
mod subscription;
#[cfg(test)]
mod tests;
mod trace;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tracing::level_filters::LevelFilter;

pub use catalog::{CATALOG, Event};
pub use custody::{code_and_signal, hear_custody, pid_number};
pub use define::{EventEntry, FieldEntry, Level};
pub use field::FieldValue;
pub use logging::{LogLevel, Logging};
pub use measures::{MEASURES, Measure};
pub use propagation::{attached, continued};
#[cfg(feature = "metrics")]
pub use record::{Standing, stands};
pub use subscription::{EventOrigin, Subscription, observe, subscribe, subscribe_to};
pub use trace::{TraceContext, TraceError};

use logging::somebody_says;

/// Reports whether anyone receives events of this level. Ask before you create an event that happens often.
pub fn is_heard(level: Level) -> bool {
    // The `metrics` crate does not tell whether a recorder uses a measure.
    cfg!(feature = "metrics") || subscription::wants(level) || is_traced(level)
}

/// Reports whether `tracing` gets events of this level: a subscriber wants them, and an engine logs that much.
fn is_traced(level: Level) -> bool {
    let filter = level.filter();
    LevelFilter::current() >= filter && filter.into_level().is_some_and(somebody_says)
}

/// Delivers an event to all listeners.
pub fn emit(event: Event) {
    let level = event.level();
    #[cfg(feature = "metrics")]
    record::record(&event);
    if is_traced(level) {
        event.trace();
    }
    if subscription::wants(level) {
        subscription::deliver(event, level);
    }
}

/// Creates and delivers an event if anyone listens to this level. The event may turn out to be a warning.
pub fn emit_with(level: Level, event: impl FnOnce() -> Event) {
    if is_heard(level) {
        emit(event());
    }
}

impl Serialize for Event {
    /// Serializes a map: `event`, `level`, and the fields. Durations are seconds, and absent values are null.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields();
        let mut map = serializer.serialize_map(Some(fields.len() + 2))?;
        map.serialize_entry("event", self.name())?;
        map.serialize_entry("level", self.level().as_str())?;
        for (name, value) in &fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
