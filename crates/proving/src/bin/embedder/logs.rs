//! Subscribers of `tracing`: one that tells warnings, and those that misbehave.

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
enum Manner {
    /// Tells warnings and errors.
    Tells,
    /// Panics at every event once the shutdown has begun, as one does whose standard error is closed.
    Panics,
    /// Panics at every single event.
    AlwaysPanics,
}

struct Log(Manner);

/// Sets the subscriber of this name for the process.
pub(crate) fn set(name: &str) {
    let manner = match name {
        "" => return,
        "tells" => Manner::Tells,
        "panics" => Manner::Panics,
        "always-panics" => Manner::AlwaysPanics,
        _ => panic!("no such log: {name}"),
    };
    tracing::subscriber::set_global_default(Log(manner)).expect("the first subscriber");
}

impl Subscriber for Log {
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
        let mut words = Words::default();
        event.record(&mut words);
        let words = words.0;
        if words.contains("shutdown.start") {
            SHUTTING_DOWN.store(true, Ordering::Relaxed);
        }
        match self.0 {
            Manner::Tells if *event.metadata().level() <= Level::WARN => tell(&format!("log{words}")),
            Manner::Panics if SHUTTING_DOWN.load(Ordering::Relaxed) => panic!("the log is full:{words}"),
            Manner::AlwaysPanics => panic!("the log is full"),
            Manner::Tells | Manner::Panics => {}
        }
    }
}

/// All fields of an event as text.
#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
