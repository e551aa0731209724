//! The output of workers is captured, bounded and made harmless, and never disturbs the protocol.

mod output_tail;

use snakepit::pool::{OutputStream, WorkerOutput};
use snakepit::{Value, args};

use crate::support::{Pit, soon, until, worker};

fn output(pit: &Pit) -> WorkerOutput {
    let pool = &pit.pools()[0];
    let worker = pool.workers()[0].id.clone();
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
    until("all is read", || output(&pit).lines.len() == 50).await;
    let WorkerOutput { lines, dropped, .. } = output(&pit);
    assert!(
        lines
            .iter()
            .enumerate()
            .all(|(n, line)| line.text == format!("line {n}") && line.stream == OutputStream::Stdout)
    );
    assert_eq!(dropped, 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_looks_like_the_protocol_is_plain_text() {
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
    until("all is read", || output(&pit).lines.len() == texts.len()).await;
    for line in output(&pit).lines {
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
        let WorkerOutput { lines: kept, dropped, .. } = output(&pit);
        kept.len() as u64 + dropped == 40_000
    })
    .await;
    let WorkerOutput { lines: kept, dropped, .. } = output(&pit);
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
    until("it is read", || !output(&pit).lines.is_empty()).await;
    let lines = output(&pit).lines;
    assert!(
        lines[0].text.len() < 10_000 && lines[0].text.ends_with("bytes more)"),
        "{}",
        lines[0].text.len()
    );
    pit.end().await;
}
