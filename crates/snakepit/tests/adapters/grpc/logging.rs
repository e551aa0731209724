//! `grpc_log_level` limits what the libraries behind gRPC send to the host's subscriber.
//!
//! About `crates/telemetry/src/logging/grpc.rs`.

use std::sync::{Arc, Mutex};

use snakepit::telemetry::{LogLevel, Logging};
use snakepit::{Snakepit, args};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::Pit;

/// Receives everything, and records the sources.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<(String, Level)>>>);

impl Subscriber for Ear {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Ear {
    fn note(&self, metadata: &Metadata<'_>) {
        self.0.lock().expect("a lock").push((metadata.target().to_owned(), *metadata.level()));
    }

    /// Returns how often the libraries behind gRPC logged something that is not an error.
    fn chatter(&self) -> usize {
        let is_theirs = |target: &str| ["h2", "hyper", "tonic"].iter().any(|name| target.starts_with(name));
        let heard = self.0.lock().expect("a lock");
        heard.iter().filter(|(target, level)| is_theirs(target) && *level > Level::ERROR).count()
    }
}

async fn one_call(logging: Logging) {
    let pit = Pit::build(Snakepit::builder().logging(logging).pool(super::pool())).await;
    let echoed: i64 = pit.call("echo", args! { value: 3 }).await.expect("an answer");
    assert_eq!(echoed, 3);
    pit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_the_grpc_libraries_are_filtered_by_their_level() {
    let ear = Ear::default();
    tracing::subscriber::set_global_default(ear.clone()).expect("the only one");
    one_call(Logging::default()).await;
    assert_eq!(ear.chatter(), 0, "{:?}", ear.0);
    one_call(Logging::default().grpc_log_level(LogLevel::Trace)).await;
    assert!(ear.chatter() > 0, "with everything allowed, something is said");
}
