//! One, two and three signals in each step of the state machine.

use rustix::process::Signal;

use super::{ALL_STEPS, EmbedderProcess, ProcessEnd};

/// All steps at which a signal is answered. Before the first step, nothing has been started, and signals have their
/// default effect.
const STEPS: [&str; 8] = ["engine", "await", "function", "start", "capture", "stop", "cleanup", "exit"];

/// Runs a script that gets this signal `times` times at a step.
fn faulty(step: &str, signal: i32, times: usize, exit: &str) -> ProcessEnd {
    let fault = vec![format!("{step}:{signal}"); times].join(",");
    let mode = format!("exit={exit}");
    EmbedderProcess::start_with(&["script", "hook", &mode], &[("SNAKEPIT_SCRIPT_FAULT", &fault)]).end()
}

#[test]
fn a_signal_before_the_first_step_has_its_old_meaning() {
    let ended = faulty("resolve", 15, 1, "none");
    assert_eq!((ended.status, ended.signal), (None, Some(15)));
}

#[test]
fn one_signal_in_any_step_is_a_clean_end_with_status_0() {
    for (index, step) in STEPS.into_iter().enumerate() {
        let (signal, exit) = [(15, "none"), (2, "stop"), (15, "halt")][index % 3];
        let ended = faulty(step, signal, 1, exit);
        assert_eq!(ended.status, Some(0), "{step}: {:#?}", ended.lines);
        assert_eq!(ended.steps(), ALL_STEPS, "{step}");
        assert_eq!(ended.field("cleanup", "outcome"), "clean", "{step}");
    }
}

#[test]
fn two_signals_in_any_step_leave_nothing_and_end_with_128_and_the_signal() {
    for (index, step) in STEPS.into_iter().enumerate() {
        let (signal, exit) = [(2, "none"), (15, "stop"), (15, "halt")][index % 3];
        let ended = faulty(step, signal, 2, exit);
        // The kernel merges two pending signals into one, and in the last step signals are no longer read.
        let allowed = [Some(0), Some(128 + signal)];
        assert!(allowed.contains(&ended.status), "{step}: {:?} {:#?}", ended.status, ended.lines);
        assert_eq!(ended.has_said("hook"), exit != "halt" && !ended.has_said("returned"), "{step}");
    }
}

#[test]
fn three_and_ten_signals_in_any_step_end_it_and_leave_nothing() {
    for (index, step) in STEPS.into_iter().enumerate() {
        let times = [3, 10][index % 2];
        let ended = faulty(step, 15, times, "stop");
        assert!([Some(0), Some(143)].contains(&ended.status), "{step}: {:#?}", ended.lines);
    }
}

/// Starts a script and waits until it reports that it is ready.
fn ready(words: &[&str]) -> EmbedderProcess {
    let mut embedder = EmbedderProcess::start(words);
    embedder.until("ready");
    embedder
}

#[test]
fn the_first_signal_lets_the_call_finish() {
    for runtime in ["runtime=multi", "runtime=current"] {
        let embedder = ready(&["script", "function=calls", "seconds=0.5", runtime]);
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        assert_eq!(ended.status, Some(0), "{:#?}", ended.lines);
        assert!(ended.has_said("answered"));
        assert_eq!(ended.field("stop", "drained"), true);
        assert_eq!(ended.field("start", "path"), "signal");
    }
}

#[test]
fn the_second_signal_cuts_the_call_short() {
    for exit in ["none", "stop", "halt"] {
        let mode = format!("exit={exit}");
        let mut embedder = ready(&["script", "function=calls", "hook", &mode]);
        embedder.signal(Signal::TERM);
        embedder.signal(Signal::INT);
        embedder.until_event("shutdown.exit");
        let ended = embedder.end();
        assert!([Some(143), Some(130)].contains(&ended.status), "{:?}", ended.status);
        assert_eq!(ended.field("exit", "status"), ended.status.unwrap_or_default());
        assert_eq!(ended.has_said("hook"), exit != "halt", "{exit}");
    }
}

#[test]
fn a_signal_while_the_workers_start_ends_the_script_in_order() {
    for runtime in ["runtime=multi", "runtime=current"] {
        let mut embedder = EmbedderProcess::start(&["script", "worker=slow", runtime]);
        embedder.until_event("exit_mode.selected");
        // Its worker exists, but never becomes ready.
        let home = [embedder.home.path().to_string_lossy().into_owned()];
        snakepit_proving::deadline::recheck(snakepit_proving::Deadline::patient(), "its worker", || {
            let found = snakepit_proving::census::mentioning(&home);
            found.iter().any(|it| it.cmdline.contains("slow.py")).then_some(())
        });
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        assert_eq!(ended.status, Some(0), "{:#?}", ended.lines);
        assert_eq!(ended.steps(), ALL_STEPS, "what was begun is stopped in order");
        assert_eq!(ended.field("cleanup", "outcome"), "clean");
    }
}

#[test]
fn signals_at_any_moment_of_the_start_leave_nothing() {
    for round in 0..snakepit_proving::rounds(8, 2) {
        let mut embedder = EmbedderProcess::start(&["script", "function=sleeps"]);
        embedder.until_event("exit_mode.selected");
        snakepit_proving::deadline::let_pass(std::time::Duration::from_millis(7 * round as u64));
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        // In the very first moment, the handler is not set yet.
        assert!(ended.status == Some(0) || ended.signal == Some(15), "{:?} {:#?}", ended.status, ended.lines);
    }
}

#[test]
fn a_blocked_runtime_does_not_keep_the_process_from_exiting() {
    let both = ["runtime=current", "runtime=multi"].map(|runtime| {
        let embedder = ready(&["script", "function=blocks", "hook", runtime]);
        embedder.signal(Signal::TERM);
        embedder.signal(Signal::INT);
        embedder
    });
    for embedder in both {
        let ended = embedder.end();
        assert!([Some(143), Some(130)].contains(&ended.status), "{:?}", ended.status);
        assert!(ended.has_said("hook"));
        assert!(ended.took.as_secs() < 9, "{:?}", ended.took);
    }
    let embedder = ready(&["script", "function=blocks"]);
    for _ in 0..10 {
        embedder.signal(Signal::TERM);
    }
    while embedder.host.process().is_alive() {
        embedder.signal(Signal::TERM);
    }
    let ended = embedder.end();
    assert_eq!(ended.status, Some(143));
}

#[test]
fn a_function_that_awaits_the_stop_returns_by_itself() {
    let embedder = ready(&["script", "function=heeds"]);
    embedder.signal(Signal::INT);
    let ended = embedder.end();
    assert_eq!(ended.status, Some(0), "{:#?}", ended.lines);
    assert!(ended.has_said("heeded") && ended.has_said("returned"));
}

/// A clean drain after a signal ends with status 0 in every mode. Later calls are refused, which is not a failure of
/// the script.
#[test]
fn a_function_whose_calls_are_refused_after_the_first_signal_was_cancelled_and_ends_with_status_0() {
    for exit in ["none", "stop", "halt"] {
        let mode = format!("exit={exit}");
        let embedder = ready(&["script", "function=refused", "hook", &mode]);
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        assert_eq!(ended.status, Some(0), "{exit}: {:#?}", ended.lines);
        assert_eq!(ended.steps(), ALL_STEPS, "{exit}");
        assert!(ended.has_said("refused"), "{exit}: {:#?}", ended.lines);
        assert_eq!(ended.has_said("hook"), exit != "halt", "{exit}");
    }
}

#[test]
fn signals_have_their_old_meaning_when_the_script_has_returned() {
    for times in ["times=1", "times=3"] {
        let mut embedder = EmbedderProcess::start(&["script", "lingers", times]);
        embedder.until("lingers");
        embedder.signal(Signal::TERM);
        let ended = embedder.end();
        assert_eq!((ended.status, ended.signal), (None, Some(15)));
    }
}
