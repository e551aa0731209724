//! A host exits without stopping its engine. The keeper and the guards in the runtime stop it.

use rustix::process::Signal;

use super::EmbedderProcess;

/// Starts a host that dies in this way. Returns its status, or the signal that it died of, and its output.
fn dies(how: &str, runtime: &str) -> (Option<i32>, Option<i32>, Vec<String>) {
    let (how, runtime) = (format!("how={how}"), format!("runtime={runtime}"));
    let ended = EmbedderProcess::start(&["death", &how, &runtime]).end();
    (ended.status, ended.signal, ended.lines)
}

#[test]
fn a_host_that_returns_or_exits_without_a_stop_leaves_nothing() {
    for how in ["return", "return-in-flight", "exit"] {
        for runtime in ["multi", "current"] {
            let (status, _, lines) = dies(how, runtime);
            assert_eq!(status, Some(3), "{how}: {lines:#?}");
        }
    }
}

#[test]
fn a_host_that_aborts_leaves_nothing() {
    let (_, signal, _) = dies("abort", "multi");
    assert_eq!(signal, Some(6));
}

#[test]
fn a_panic_with_the_engine_in_scope_leaves_nothing() {
    for runtime in ["multi", "current"] {
        assert_eq!(dies("panic", runtime).0, Some(101));
        assert_eq!(dies("panic-inside", runtime).0, Some(101));
    }
}

#[test]
fn a_panic_elsewhere_that_drops_the_last_handle_ends_the_workers_while_the_host_lives() {
    for how in ["panic-in-a-thread", "panic-in-a-task"] {
        for runtime in ["multi", "current"] {
            let (status, _, lines) = dies(how, runtime);
            assert_eq!(status, Some(3), "{how}, {runtime}: {lines:#?}");
            assert!(lines.iter().any(|line| line == "the worker is gone"), "{lines:#?}");
        }
    }
}

#[test]
fn a_host_that_is_killed_leaves_nothing() {
    for signal in [Signal::KILL, Signal::TERM, Signal::QUIT] {
        let mut embedder = EmbedderProcess::start(&["death", "how=wait"]);
        embedder.until("ready");
        embedder.signal(signal);
        assert_eq!(embedder.end().signal, Some(signal.as_raw()));
    }
}
