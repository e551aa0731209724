//! What `tracing` receives: a constant message, typed fields, and a span for each call.
//!
//! About `crates/telemetry/src/define.rs` and `crates/core/src/request/telemetry.rs`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use snakepit::telemetry::{LogLevel, Logging};
use snakepit::{Snakepit, Value, args};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{Pit, soon, worker};

type Fields = BTreeMap<String, String>;

/// A span's name, its fields, and whether it is closed.
type Span = (&'static str, Fields, bool);

/// Collects spans and events.
#[derive(Clone, Default)]
struct Collected {
    events: Arc<Mutex<Vec<(Level, Fields)>>>,
    spans: Arc<Mutex<BTreeMap<u64, Span>>>,
    next: Arc<AtomicU64>,
}

/// A visitor that writes each value with its type.
struct Typed<'a>(&'a mut Fields);

impl Visit for Typed<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), format!("text {value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), format!("integer {value}"));
    }

    fn record_f64(&mut self, field: &Field, _: f64) {
        self.0.insert(field.name().into(), "float".into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl Subscriber for Collected {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "snakepit"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::new();
        span.record(&mut Typed(&mut fields));
        self.spans.lock().expect("no panic").insert(id, (span.metadata().name(), fields, false));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some((_, fields, _)) = self.spans.lock().expect("no panic").get_mut(&span.into_u64()) {
            values.record(&mut Typed(fields));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Typed(&mut fields));
        self.events.lock().expect("no panic").push((*event.metadata().level(), fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        if let Some((_, _, closed)) = self.spans.lock().expect("no panic").get_mut(&id.into_u64()) {
            *closed = true;
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tracing_gets_constant_messages_typed_fields_and_a_span_for_each_call() {
    let collected = Collected::default();
    tracing::subscriber::set_global_default(collected.clone()).expect("the only one");
    let builder = Snakepit::builder().logging(Logging::default().log_level(LogLevel::Debug));
    let pit = Pit::build(builder.pool(worker("basic.py").workers(1).name("p"))).await;
    let sum: i64 = soon("a call", pit.call("add", args! { a: 1, b: 2 })).await.expect("a sum");
    assert_eq!(sum, 3);
    soon("a call", pit.call::<Value>("fail", args! { text: "x" })).await.expect_err("it fails");
    pit.end().await;

    let events = collected.events.lock().expect("no panic");
    let find = |name: &str| {
        let name = format!("text {name}");
        let found = events.iter().find(|(_, fields)| fields.get("event") == Some(&name));
        found.unwrap_or_else(|| panic!("no {name} among {events:?}"))
    };
    let (level, ready) = find("snakepit.worker.ready");
    assert_eq!(*level, Level::INFO);
    let expected = [
        ("event", "text snakepit.worker.ready"),
        ("message", "A worker is ready for calls."),
        ("pool", "text p"),
        ("took", "float"),
        ("worker", "text p-1"),
    ];
    assert_eq!(*ready, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let (level, stop) = find("snakepit.call.stop");
    assert_eq!(
        (*level, &*stop["outcome"], &*stop["message"]),
        (Level::DEBUG, "text ok", "A call has ended.")
    );
    assert!(stop["call"].starts_with("integer ") && !stop.contains_key("trace_id"), "{stop:?}");

    let spans = collected.spans.lock().expect("no panic");
    let calls: Vec<_> = spans.values().filter(|(name, _, _)| *name == "snakepit.call").collect();
    let seen: Vec<_> =
        calls.iter().map(|(_, fields, _)| (&*fields["command"], &*fields["outcome"])).collect();
    assert_eq!(seen, [("text add", "text ok"), ("text fail", "text failed")]);
    for (_, fields, closed) in calls {
        assert!(*closed, "it ends with its call");
        assert_eq!((&*fields["pool"], &*fields["worker"]), ("text p", "text p-1"));
        assert!(fields["call"].starts_with("integer "), "{fields:?}");
    }
}
