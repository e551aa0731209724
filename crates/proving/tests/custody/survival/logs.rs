//! What the engine logs, and that a misbehaving subscriber changes nothing.

use super::{ALL_STEPS, EmbedderProcess, ProcessEnd};

fn warnings(ended: &ProcessEnd) -> Vec<&str> {
    ended.said().into_iter().filter(|line| line.starts_with("log")).collect()
}

#[test]
fn an_invalid_variable_is_warned_of_once_with_its_value_and_what_holds_instead() {
    let environment = [("SNAKEPIT_SCRIPT_EXIT", "hault")];
    let ended = EmbedderProcess::start_with(&["script", "log=tells", "times=3"], &environment).end();
    let told: Vec<_> = warnings(&ended).into_iter().filter(|line| line.contains("hault")).collect();
    assert_eq!(told.len(), 1, "{:#?}", ended.lines);
    assert!(told[0].contains("SNAKEPIT_SCRIPT_EXIT") && told[0].contains("fallback=none"), "{told:?}");
    assert_eq!(ended.status, Some(0));
}

#[test]
fn a_deprecated_setting_is_logged_once() {
    let environment = [("SNAKEPIT_SCRIPT_HALT", "0")];
    let ended = EmbedderProcess::start_with(&["script", "log=tells", "times=3"], &environment).end();
    let told = warnings(&ended).iter().filter(|line| line.contains("deprecated")).count();
    assert_eq!(told, 1, "{:#?}", ended.lines);
}

#[test]
fn the_reason_of_a_failure_is_logged_unless_diagnostics_are_off() {
    for function in ["function=fails", "function=panics"] {
        let told = EmbedderProcess::start(&["script", "log=tells", "exit=stop", function]).end();
        assert!(warnings(&told).iter().any(|line| line.contains("told to")), "{:#?}", told.lines);
        let silent = EmbedderProcess::start(&["script", "log=tells", "exit=stop", function, "silent"]).end();
        assert_eq!(warnings(&silent), [""; 0]);
        assert_eq!((told.status, silent.status), (Some(1), Some(1)));
    }
}

#[test]
fn a_subscriber_that_panics_during_the_shutdown_changes_neither_status_nor_order() {
    for (function, exit, status) in
        [("", "none", 0), ("fails", "none", 1), ("", "stop", 0), ("fails", "stop", 1), ("fails", "halt", 1)]
    {
        let (function, exit) = (format!("function={function}"), format!("exit={exit}"));
        let ended = EmbedderProcess::start(&["script", "log=panics", &function, &exit]).end();
        assert_eq!(ended.status, Some(status), "{function}, {exit}: {:#?}", ended.lines);
    }
}

#[test]
fn a_subscriber_that_always_panics_leaves_nothing_behind() {
    let ended = EmbedderProcess::start(&["script", "log=always-panics", "exit=stop"]).end();
    // The subscriber also panics in destructors, where Rust aborts.
    assert!(ended.status.is_some() || ended.signal == Some(6), "{:#?}", ended.lines);
    assert!(ended.steps().len() <= ALL_STEPS.len());
}
