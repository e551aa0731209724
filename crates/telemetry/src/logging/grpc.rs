//! Limits what the libraries behind gRPC log: their events pass this filter on the way to the host's subscriber.

use std::sync::atomic::{AtomicU8, Ordering};

use tracing::dispatcher::{self, Dispatch};
use tracing::instrument::{WithDispatch, WithSubscriber};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Event, Metadata, Subscriber};

use super::{LogLevel, rank};

/// The prefixes of their targets.
const LIBRARIES: [&str; 4] = ["h2", "hyper", "tonic", "tower"];

/// The rank of the most verbose engine.
static LOUDEST: AtomicU8 = AtomicU8::new(0);

pub(super) fn begin(level: LogLevel) {
    LOUDEST.fetch_max(rank(level), Ordering::Relaxed);
}

/// Returns a subscriber that drops events of those libraries beyond the engine's level.
pub fn quiet_subscriber() -> Dispatch {
    let host = dispatcher::get_default(Clone::clone);
    if host.is::<NoSubscriber>() {
        // There is no listener, and a subscriber would only cost time.
        return host;
    }
    Dispatch::new(LibraryFilter { host, most: LevelFilter::current() })
}

/// Runs the future with [`quiet_subscriber`].
pub fn quietly<F: Future>(work: F) -> WithDispatch<F> {
    work.with_subscriber(quiet_subscriber())
}

/// The host's subscriber behind the filter.
struct LibraryFilter {
    host: Dispatch,
    /// The level that the host listens to. A higher one would make every library log for nothing.
    most: LevelFilter,
}

fn is_too_much(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_theirs = LIBRARIES.iter().any(|library| {
        target.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', ':']))
    });
    is_theirs && rank(LogLevel::of(*metadata.level())) > LOUDEST.load(Ordering::Relaxed)
}

impl Subscriber for LibraryFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_too_much(metadata) {
            // Another engine may allow more later.
            return Interest::sometimes();
        }
        self.host.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !is_too_much(metadata) && self.host.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.host.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.host.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.host.record_follows_from(span, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        !is_too_much(event.metadata())
    }

    fn event(&self, event: &Event<'_>) {
        self.host.event(event);
    }

    fn enter(&self, span: &Id) {
        self.host.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.host.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.host.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.host.try_close(id)
    }
}
