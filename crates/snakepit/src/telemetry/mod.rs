//! What happens in an engine, for those who run it: one [catalog](CATALOG) of events, delivered in three ways.
//!
//! - as `tracing` events of the target `snakepit`, with a constant message and typed fields, and a span for each call;
//! - as `metrics` counters, gauges and histograms, with the feature of that name;
//! - to whoever has asked for them with [`subscribe`].
//!
//! Owns the list, and who hears of it. What happens where is for the others to say: they call `emit`, which costs next
//! to nothing while nobody listens.
//!
//! ```
//! use std::time::Duration;
//! let mut events = snakepit::telemetry::subscribe();
//! if let Some(event) = events.next_within(Duration::from_millis(1)) {
//!     println!("{} {:?}", event.name(), event.fields());
//! }
//! ```

mod catalog;
mod define;
mod field;
mod hub;
mod measures;
mod of_custody;
mod of_pools;
mod propagation;
#[cfg(feature = "metrics")]
mod record;
#[cfg(test)]
mod tests;
mod trace;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tracing::level_filters::LevelFilter;

pub use catalog::{CATALOG, Event};
pub use define::{Entry, FieldEntry, Level};
pub use field::FieldValue;
pub use hub::{Subscription, observe, subscribe, subscribe_to};
pub use measures::{MEASURES, Measure};
pub(crate) use of_custody::hear_custody;
pub(crate) use propagation::{attached, continued};
#[cfg(feature = "metrics")]
pub(crate) use record::{Standing, stands};
pub use trace::{TraceContext, TraceError};

use crate::logging::somebody_says;

/// Whether anybody hears of events of this level. Ask before you make one that happens often.
pub(crate) fn is_heard(level: Level) -> bool {
    // Nobody can ask a recorder of measures whether it is interested.
    cfg!(feature = "metrics") || hub::wants(level) || is_traced(level)
}

/// Whether `tracing` is told: somebody looks there, and an engine says so much.
fn is_traced(level: Level) -> bool {
    let filter = level.filter();
    LevelFilter::current() >= filter && filter.into_level().is_some_and(somebody_says)
}

/// Tells everybody who listens.
pub(crate) fn emit(event: Event) {
    let level = event.level();
    #[cfg(feature = "metrics")]
    record::record(&event);
    if is_traced(level) {
        event.trace();
    }
    if hub::wants(level) {
        hub::deliver(event, level);
    }
}

/// Tells everybody who listens, if anybody does; the event is made only then. It may be louder than the level says.
pub(crate) fn emit_with(level: Level, event: impl FnOnce() -> Event) {
    if is_heard(level) {
        emit(event());
    }
}

impl Serialize for Event {
    /// A map: `event`, `level`, and the fields. Durations are seconds, and what is absent is null.
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
