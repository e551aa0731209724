//! Subscribers of `tracing`: one prints warnings, and the others misbehave.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::tell;

/// Whether the shutdown has begun.
static SHUTTING_DOWN: AtomicBool = AtomicBool::new(false);

/// What a subscriber does with an event.
#[derive(Clone, Copy)]
enum SubscriberBehaviour {
    /// Prints warnings and errors.
    Tells,
    /// Panics at every event once the shutdown has begun, like a subscriber whose standard error is closed.
    Panics,
    /// Panics at every event.
    AlwaysPanics,
}

struct TestSubscriber(SubscriberBehaviour);

/// Sets the subscriber of this name for the process.
pub(crate) fn set(name: &str) {
    let behaviour = match name {
        "" => return,
        "tells" => SubscriberBehaviour::Tells,
        "panics" => SubscriberBehaviour::Panics,
        "always-panics" => SubscriberBehaviour::AlwaysPanics,
        _ => panic!("no such log: {name}"),
    };
    tracing::subscriber::set_global_default(TestSubscriber(behaviour)).expect("the first subscriber");
}

impl Subscriber for TestSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = FieldText::default();
        event.record(&mut words);
        let words = words.0;
        if words.contains("shutdown.start") {
            SHUTTING_DOWN.store(true, Ordering::Relaxed);
        }
        match self.0 {
            SubscriberBehaviour::Tells if *event.metadata().level() <= Level::WARN => {
                tell(&format!("log{words}"));
            }
            SubscriberBehaviour::Panics if SHUTTING_DOWN.load(Ordering::Relaxed) => {
                panic!("the log is full:{words}")
            }
            SubscriberBehaviour::AlwaysPanics => panic!("the log is full"),
            SubscriberBehaviour::Tells | SubscriberBehaviour::Panics => {}
        }
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
