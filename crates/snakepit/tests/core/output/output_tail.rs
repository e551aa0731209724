//! The output that an error shows belongs to its call: the first lines, the last lines, and the reason of the failure.

use std::time::Duration;

use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{Pit, lines, soon, until, worker};

const SHORT: CancelGrace = CancelGrace::each(Duration::from_millis(200)).ask(Duration::from_millis(20));

async fn start() -> Pit {
    Pit::start(worker("loud.py").workers(1).cancel_grace(SHORT)).await
}

/// Returns what the error shows of a call that writes to a file and is then late.
async fn lines_of_late(pit: &Pit, command: &str, args: impl serde::Serialize) -> (Vec<String>, String) {
    let call = pit.call::<Value>(command, args).timeout(Duration::from_millis(700));
    let error = soon(command, call).await.expect_err("no time");
    let CallError::Timeout { output, .. } = &error else { panic!("{error}") };
    (output.clone(), error.to_string())
}

async fn fail_with_a_traceback(pit: &Pit) {
    let call = pit.call::<Value>("fail_with_a_traceback", args! { text: "earlier" });
    let error = soon("the failure", call).await.expect_err("it fails");
    assert!(error.remote().is_some(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tracebacks_of_earlier_calls_are_not_shown() {
    let pit = start().await;
    for _ in 0..10 {
        fail_with_a_traceback(&pit).await;
        let args = args! { lines: 3, path: pit.file("printed") };
        let (output, text) = lines_of_late(&pit, "print_and_sleep", args).await;
        assert_eq!(output, ["line 0", "line 1", "line 2"], "{text}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_printed_nothing_shows_what_came_before_it_and_says_so() {
    let pit = start().await;
    fail_with_a_traceback(&pit).await;
    let args = args! { lines: 0, path: pit.file("printed") };
    let (output, text) = lines_of_late(&pit, "print_and_sleep", args).await;
    assert_eq!(output[0], "(nothing was printed in this call; before it:)", "{text}");
    assert!(text.contains("Traceback (most recent call last):\n"), "{text}");
    assert_eq!(output.last().map(String::as_str), Some("KeyError: 'earlier'"), "{text}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_shows_the_first_and_the_last_of_many_lines() {
    let pit = start().await;
    fail_with_a_traceback(&pit).await;
    let args = args! { lines: 1000, path: pit.file("printed") };
    let (output, text) = lines_of_late(&pit, "print_and_sleep", args).await;
    assert_eq!((output[0].as_str(), output[19].as_str()), ("line 0", "line 19"), "{text}");
    assert_eq!((output[20].as_str(), output[21].as_str()), ("… 920 lines left out …", "line 940"), "{text}");
    assert_eq!((output.len(), output[80].as_str()), (81, "line 999"), "{text}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_shows_a_progress_bar_in_its_last_state() {
    let pit = start().await;
    let (output, text) = lines_of_late(&pit, "draw_and_sleep", args! { path: pit.file("drawn") }).await;
    assert_eq!(output, ["49 %"], "{text}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_several_calls_says_that_lines_may_be_of_others() {
    let pit = Pit::start(worker("loud.py").workers(1).concurrency(4).cancel_grace(SHORT)).await;
    let _: Value = soon("words", pit.call("say", args! { text: "before" })).await.expect("said");
    let pool = &pit.pools()[0];
    let id = pool.workers()[0].id.clone();
    let printed = || pool.output(&id).map_or(0, |output| output.lines.len());
    until("they are read", || printed() == 4).await;
    let path = pit.file("other");
    let args = args! { lines: 1, path: &path };
    let other = tokio::spawn(pit.call::<Value>("print_and_sleep", args).into_future());
    until("the other one sleeps", || !lines(&path).is_empty() && printed() == 5).await;
    let args = args! { lines: 2, path: pit.file("own") };
    let (output, text) = lines_of_late(&pit, "print_and_sleep", args).await;
    assert_eq!(output, ["(of all calls since, up to 4 at a time:)", "line 0", "line 1"], "{text}");
    other.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_panic_is_shown_however_long_its_backtrace_is() {
    let pit = start().await;
    for (reason, shown) in [
        (
            vec!["thread 'main' (17) panicked at src/main.rs:2:5:", "index out of bounds"],
            "index out of bounds",
        ),
        (vec!["panic: runtime error: index out of range [5]", "goroutine 1 [running]:"], "out of range [5]"),
        (vec!["fatal error: all goroutines are asleep - deadlock!"], "deadlock!"),
        (
            vec!["Traceback (most recent call last):", "  File \"a.py\", line 1", "Oops: it broke"],
            "Oops: it broke",
        ),
    ] {
        fail_with_a_traceback(&pit).await;
        let call = pit.call::<Value>("panic", args! { reason: reason.clone(), frames: 500 });
        let error = soon("the panic", call).await.expect_err("dead");
        let autopsy = error.autopsy().unwrap_or_else(|| panic!("{error}"));
        assert_eq!(autopsy.output[0], reason[0], "{error}");
        let text = error.to_string();
        assert!(text.contains(shown) && text.contains("499: in some function"), "{error}");
        assert!(!text.contains("earlier") && text.contains(" lines left out …"), "{error}");
    }
    pit.end().await;
}

/// Workers without our SDK, which end like programs in Go.
#[cfg(all(feature = "stdio", feature = "http"))]
#[tokio::test(flavor = "multi_thread")]
async fn every_adapter_shows_the_reason_of_a_panic() {
    use snakepit::adapter::Program;
    use snakepit::adapter::http::HttpWorker;
    let file = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers").join(name);
        path.to_string_lossy().into_owned()
    };
    let server = Program::new(["python3".into(), file("http_server.py"), "port".into()]);
    for pool in [
        snakepit::stdio(["python3".into(), file("lines.py")]).workers(1),
        snakepit::http(HttpWorker::new(server)).workers(1),
    ] {
        let pit = Pit::start(pool).await;
        let call = pit.call::<Value>("panic", args! {});
        let error = soon("the panic", call).await.expect_err("dead");
        let autopsy = error.autopsy().unwrap_or_else(|| panic!("{error}"));
        assert_eq!(autopsy.output[0], "panic: runtime error: index out of range [5]", "{error}");
        assert_eq!(autopsy.output.last().map(String::as_str), Some("goroutine 499 [running]:"), "{error}");
        assert_eq!(autopsy.output.len(), 81, "{error}");
        pit.end().await;
    }
}
