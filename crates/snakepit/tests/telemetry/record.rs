//! With the feature `metrics`, measurements reach the recorder that the host has installed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use snakepit::telemetry::MEASURES;
use snakepit::{Value, args};

use crate::support::{Pit, soon, until, worker};

/// A recorder that adds up counters, keeps the last value of gauges, and counts the entries of histograms.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, f64>>>);

struct Page(Book, String);

impl Book {
    fn page(&self, key: &Key) -> Arc<Page> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Page(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn read(&self, name: &str) -> Option<f64> {
        self.0.lock().expect("no panic").get(name).copied()
    }
}

impl Page {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.0.0.lock().expect("no panic").entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Page {
    fn increment(&self, value: u64) {
        self.change(|sum| *sum += f64::from(u32::try_from(value).expect("not billions")));
    }

    fn absolute(&self, value: u64) {
        self.change(|sum| *sum = f64::from(u32::try_from(value).expect("not billions")));
    }
}

impl GaugeFn for Page {
    fn increment(&self, value: f64) {
        self.change(|now| *now += value);
    }

    fn decrement(&self, value: f64) {
        self.change(|now| *now -= value);
    }

    fn set(&self, value: f64) {
        self.change(|now| *now = value);
    }
}

impl HistogramFn for Page {
    fn record(&self, _: f64) {
        self.change(|count| *count += 1.0);
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.page(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.page(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.page(key))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_waits_and_workers_are_measured() {
    let book = Book::default();
    metrics::set_global_recorder(book.clone()).expect("the only one");
    let pit = Pit::start(worker("basic.py").workers(2).name("p")).await;
    for _ in 0..3 {
        let sum: i64 = soon("a call", pit.call("add", args! { a: 1, b: 2 })).await.expect("a sum");
        assert_eq!(sum, 3);
    }
    soon("a call", pit.call::<Value>("fail", args! { text: "x" })).await.expect_err("it fails");
    let expected = [
        ("snakepit_calls_total{pool=p,command=add,outcome=ok}", 3.0),
        ("snakepit_calls_total{pool=p,command=fail,outcome=failed}", 1.0),
        ("snakepit_call_seconds{pool=p,command=add}", 3.0),
        ("snakepit_queue_wait_seconds{pool=p}", 4.0),
        ("snakepit_worker_starts_total{pool=p,outcome=ok}", 2.0),
        ("snakepit_worker_start_seconds{pool=p}", 2.0),
    ];
    for (name, value) in expected {
        assert_eq!(book.read(name), Some(value), "{name} of {:?}", book.0);
    }
    until("it is seen that they serve", || book.read("snakepit_workers{pool=p}") == Some(2.0)).await;
    until("it is seen that nothing waits", || book.read("snakepit_queued{pool=p}") == Some(0.0)).await;
    pit.end().await;
    for gauge in ["workers", "queued", "in_flight", "sessions"] {
        let name = format!("snakepit_{gauge}{{pool=p}}");
        assert_eq!(book.read(&name), Some(0.0), "{name} after the stop");
    }
    let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
    for written in book.0.lock().expect("no panic").keys() {
        let name = written.split('{').next().expect("a name");
        assert!(names.contains(&name), "{name} is not in the list");
    }
}
