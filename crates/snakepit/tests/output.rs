//! What workers print: captured, bounded, harmless, and never in the way of the protocol.

mod support;

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use snakepit::{OutputLine, Value, args};
use support::{Pit, soon, until, worker};

fn output(pit: &Pit) -> (Vec<OutputLine>, u64) {
    let pool = &pit.pools()[0];
    let worker = pool.status().workers[0].id.clone();
    pool.output(&worker).expect("its output")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stray_print_is_captured_and_corrupts_nothing() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for n in 0..50 {
        let _: Value =
            soon("a print", pit.call("says", args! { text: format!("line {n}") })).await.expect("said");
        let echoed: u32 = soon("an echo", pit.call("echo", args! { value: n })).await.expect("a value");
        assert_eq!(echoed, n);
    }
    until("all is read", || output(&pit).0.len() == 50).await;
    let (lines, dropped) = output(&pit);
    assert!(
        lines.iter().enumerate().all(|(n, line)| line.text == format!("line {n}") && line.stream == "stdout")
    );
    assert_eq!(dropped, 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_like_the_protocol_is_only_text() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let texts = [
        "\u{1}\u{2}\0\0\u{1}\u{4}\0\0",
        "{\"ready\": true}",
        "READY",
        "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[31m",
    ];
    for text in texts {
        let _: Value = soon("a print", pit.call("says", args! { text: text })).await.expect("said");
    }
    until("all is read", || output(&pit).0.len() == texts.len()).await;
    for line in output(&pit).0 {
        assert!(!line.text.chars().any(char::is_control), "{:?}", line.text);
    }
    let echoed: u32 = soon("an echo", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_drained_and_only_its_end_is_kept() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let lines: u32 = soon("the flood", pit.call("flood", args! { lines: 20_000 })).await.expect("flooded");
    assert_eq!(lines, 20_000);
    until("all is read", || {
        let (kept, dropped) = output(&pit);
        kept.len() as u64 + dropped == 40_000
    })
    .await;
    let (kept, dropped) = output(&pit);
    let bytes: usize = kept.iter().map(|line| line.text.len()).sum();
    assert!(kept.len() <= 200 && bytes <= 64 * 1024, "{} lines, {bytes} bytes", kept.len());
    assert!(dropped > 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_an_end_is_cut() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let text = "x".repeat(5_000_000);
    let _: Value = soon("a print", pit.call("says", args! { text: text })).await.expect("said");
    until("it is read", || !output(&pit).0.is_empty()).await;
    let (lines, _) = output(&pit);
    assert!(
        lines[0].text.len() < 10_000 && lines[0].text.ends_with("bytes more)"),
        "{}",
        lines[0].text.len()
    );
    pit.end().await;
}

/// Keeps everything that is logged up to a level, as text.
#[derive(Clone)]
struct Log(tracing::Level, Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && metadata.level() <= &self.0
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields<'a>(&'a mut String);
        impl tracing::field::Visit for Fields<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        event.record(&mut Fields(&mut self.1.lock().expect("the log")));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// In a runtime of one thread, so that everything that is logged is logged here.
async fn logged(level: tracing::Level) -> String {
    let log = Log(level, Arc::default());
    let guard = tracing::subscriber::set_default(log.clone());
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let _: Value = soon("a print", pit.call("says", args! { text: "psst \u{1b}[31m" })).await.expect("said");
    until("it is read", || !output(&pit).0.is_empty()).await;
    pit.end().await;
    drop(guard);
    log.1.lock().expect("the log").clone()
}

#[tokio::test(flavor = "current_thread")]
async fn a_worker_that_prints_is_not_heard_unless_somebody_asks() {
    let quiet = logged(tracing::Level::INFO).await;
    assert_eq!(quiet, "");
    let loud = logged(tracing::Level::DEBUG).await;
    assert!(loud.contains("psst") && loud.contains("hostile-1"), "{loud}");
    assert!(!loud.contains("\u{1b}[31m"), "{loud}");
}
