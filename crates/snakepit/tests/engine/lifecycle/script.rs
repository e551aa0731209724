//! Each row of the tables in docs/lifecycle.md, with the example `script` as a separate process.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A script that has ended.
struct Ended {
    output: Output,
    events: Vec<Value>,
    /// The number of runs that are left in its state directory.
    runs: usize,
}

impl Ended {
    fn status(&self) -> i32 {
        self.output.status.code().expect("it was not killed")
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Returns the names of the events of its shutdown, without their common prefix.
    fn steps(&self) -> Vec<&str> {
        let names = self.events.iter().filter_map(|event| event["event"].as_str());
        names.filter_map(|name| name.strip_prefix("snakepit.script.shutdown.")).collect()
    }

    /// Returns a field of the first event with this name.
    fn field(&self, event: &str, field: &str) -> Value {
        let name = format!("snakepit.script.{event}");
        let found = self.events.iter().find(|it| it["event"] == name.as_str());
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.events))[field].clone()
    }

    /// Returns the source that decided, and the resulting mode.
    fn selected(&self) -> (String, String) {
        let text = |field| self.field("exit_mode.selected", field).as_str().unwrap_or_default().to_owned();
        (text("source"), text("effective"))
    }
}

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("deps/ is in the build's directory").join("examples/script");
    assert!(path.exists(), "{} is not built: cargo build -p snakepit --examples", path.display());
    path
}

/// Runs a script that gets SIGTERM once its function waits for the end.
#[expect(clippy::disallowed_methods, reason = "the script is a host of its own")]
fn signalled(arguments: &[&str]) -> Ended {
    let dir = TempDir::new().expect("a directory");
    let (events, state) = (dir.path().join("events"), dir.path().join("state"));
    let mut child = Command::new(example())
        .args(arguments)
        .arg("--events")
        .arg(&events)
        .env_remove("SNAKEPIT_SCRIPT_EXIT")
        .env_remove("SNAKEPIT_SCRIPT_HALT")
        .env_remove("SNAKEPIT_NO_HALT")
        .env("SNAKEPIT_STATE_DIR", &state)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("waits for the end") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).expect("a line") > 0, "it has ended");
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    let output = child.wait_with_output().expect("it ends");
    let text = std::fs::read_to_string(&events).unwrap_or_default();
    let events = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let runs = std::fs::read_dir(state.join("runs")).map_or(0, Iterator::count);
    Ended { output, events, runs }
}

fn script(arguments: &[&str]) -> Ended {
    script_with(arguments, &[])
}

#[expect(clippy::disallowed_methods, reason = "the script is a host of its own")]
fn script_with(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let dir = TempDir::new().expect("a directory");
    let (events, state) = (dir.path().join("events"), dir.path().join("state"));
    let output = Command::new(example())
        .args(arguments)
        .arg("--events")
        .arg(&events)
        .env_remove("SNAKEPIT_SCRIPT_EXIT")
        .env_remove("SNAKEPIT_SCRIPT_HALT")
        .env_remove("SNAKEPIT_NO_HALT")
        .env("SNAKEPIT_STATE_DIR", &state)
        .envs(environment.iter().copied())
        .output()
        .expect("it starts");
    let text = std::fs::read_to_string(&events).unwrap_or_default();
    let events = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let runs = std::fs::read_dir(state.join("runs")).map_or(0, Iterator::count);
    Ended { output, events, runs }
}

const ALL_STEPS: [&str; 4] = ["start", "stop", "cleanup", "exit"];

// --- which exit mode applies ---

#[test]
fn precedence_1_the_option_exit_mode_as_provided() {
    for mode in ["none", "stop", "halt", "auto"] {
        let environment = [("SNAKEPIT_SCRIPT_EXIT", "halt"), ("SNAKEPIT_SCRIPT_HALT", "1")];
        let ended = script_with(&["--exit-mode", mode], &environment);
        assert_eq!(ended.selected(), ("exit_mode".into(), mode.into()));
        assert_eq!(ended.status(), 0);
    }
}

#[test]
fn precedence_1_an_invalid_exit_mode_fails_before_anything_is_started() {
    let ended = script(&["--exit-mode", "hault"]);
    assert_eq!(ended.status(), 2);
    assert!(ended.stderr().contains(r#""hault" is not a value of exit_mode"#), "{}", ended.stderr());
    assert_eq!(ended.stdout(), "");
    assert!(ended.events.is_empty(), "{:?}", ended.events);
}

#[test]
fn precedence_1_the_option_is_one_of_the_four_words_as_they_are_written() {
    for mode in ["STOP", " stop", "Halt"] {
        let ended = script(&["--exit-mode", mode]);
        assert_eq!(ended.status(), 2, "{mode:?}");
        let said = ended.stderr();
        assert!(said.contains(&format!("{mode:?} is not a value of exit_mode")), "{said}");
    }
}

#[test]
fn an_invalid_stop_mode_fails_before_anything_is_started() {
    let ended = script(&["--stop-mode", "sometimes"]);
    assert_eq!(ended.status(), 2);
    assert!(ended.stderr().contains(r#""sometimes" is not a value of stop_mode"#), "{}", ended.stderr());
    assert!(ended.events.is_empty(), "{:?}", ended.events);
}

#[test]
fn precedence_2_the_variable_is_parsed() {
    for (value, mode) in [(" Stop\t", "stop"), ("HALT", "halt"), ("none", "none"), ("auto ", "auto")] {
        let environment = [("SNAKEPIT_SCRIPT_EXIT", value), ("SNAKEPIT_SCRIPT_HALT", "1")];
        let ended = script_with(&[], &environment);
        assert_eq!(ended.selected(), ("SNAKEPIT_SCRIPT_EXIT".into(), mode.into()), "{value:?}");
    }
}

#[test]
fn precedence_2_empty_and_invalid_values_are_unset() {
    for value in ["", "  ", "quit"] {
        let ended = script_with(&[], &[("SNAKEPIT_SCRIPT_EXIT", value)]);
        assert_eq!(ended.selected(), ("default".into(), "none".into()), "{value:?}");
        assert_eq!(ended.status(), 0);
    }
}

#[test]
fn precedence_3_the_old_variable_is_halt_if_it_is_truthy() {
    for value in ["1", "true", "YES", " y ", "on"] {
        let ended = script_with(&["--fail"], &[("SNAKEPIT_SCRIPT_HALT", value)]);
        assert_eq!(ended.selected(), ("SNAKEPIT_SCRIPT_HALT".into(), "halt".into()), "{value:?}");
        assert_eq!(ended.status(), 1);
    }
    for value in ["0", "no", "off", "2"] {
        let ended = script_with(&[], &[("SNAKEPIT_SCRIPT_HALT", value)]);
        assert_eq!(ended.selected(), ("default".into(), "none".into()), "{value:?}");
    }
}

#[test]
fn precedence_4_the_default_is_none() {
    assert_eq!(script(&[]).selected(), ("default".into(), "none".into()));
}

// --- the status ---

#[test]
fn a_function_that_returns_is_status_0_in_every_mode() {
    for mode in ["none", "stop", "halt", "auto"] {
        let ended = script(&["--exit-mode", mode]);
        assert_eq!((ended.status(), ended.runs), (0, 0), "{mode}");
        assert_eq!(ended.field("shutdown.start", "status"), 0);
        assert_eq!(ended.stdout(), "Hello, World!\n");
        assert_eq!(ended.stderr(), "");
    }
}

#[test]
fn an_error_is_status_1_and_is_not_printed_by_us() {
    for mode in ["stop", "halt"] {
        let ended = script(&["--exit-mode", mode, "--fail"]);
        assert_eq!((ended.status(), ended.runs), (1, 0), "{mode}");
        assert_eq!(ended.stderr(), "", "{mode}");
        assert_eq!(ended.field("shutdown.exit", "status"), 1);
    }
}

#[test]
fn an_error_in_mode_none_is_returned_to_the_caller() {
    let ended = script(&["--fail"]);
    assert_eq!(ended.field("shutdown.exit", "status"), 1);
    assert_eq!(ended.stderr(), "script: it was told to fail\n", "main has said so");
    assert_eq!((ended.status(), ended.runs), (1, 0));
}

#[test]
fn a_panic_is_resumed_in_mode_none_and_status_1_in_stop_and_halt() {
    for (mode, status) in [("none", 101), ("stop", 1), ("halt", 1), ("auto", 101)] {
        let ended = script(&["--exit-mode", mode, "--panic"]);
        assert_eq!((ended.status(), ended.runs), (status, 0), "{mode}");
        assert_eq!(ended.steps(), ALL_STEPS, "{mode}");
        assert_eq!(ended.field("shutdown.exit", "status"), 1);
    }
}

#[test]
fn an_error_of_the_function_after_a_signal_is_a_failure_in_every_mode() {
    for mode in ["stop", "halt"] {
        let ended = signalled(&[
            "--exit-mode",
            mode,
            "--until-the-end",
            "--fail",
            "--log",
            "--events",
            "/dev/stderr",
        ]);
        assert_eq!((ended.status(), ended.runs), (1, 0), "{mode}");
        assert_eq!(ended.field("shutdown.start", "status"), 1, "{mode}");
        assert_eq!(ended.field("shutdown.exit", "status"), 1, "{mode}");
        assert_eq!(ended.field("shutdown.exit", "exit_mode"), mode);
        // The log has it before the shutdown begins.
        let log = ended.stderr();
        let at = |what: &str| log.find(what).unwrap_or_else(|| panic!("{mode}: no {what:?} in {log}"));
        assert!(at("it was told to fail") < at("snakepit.script.shutdown.start"), "{mode}: {log}");
    }
    let ended = signalled(&["--exit-mode", "none", "--until-the-end", "--fail"]);
    assert_eq!(ended.stderr(), "script: it was told to fail\n", "it is returned to main");
    assert_eq!((ended.status(), ended.runs), (1, 0));
    assert_eq!(ended.field("shutdown.exit", "status"), 1);
    assert_eq!(ended.field("shutdown.exit", "exit_mode"), "none");
}

#[test]
fn a_function_whose_calls_are_refused_after_a_signal_was_cancelled_and_has_not_failed() {
    for (mode, told) in [("stop", "stop"), ("halt", "halt"), ("none", "stop")] {
        let ended = signalled(&["--exit-mode", mode, "--until-the-end", "--call", "--log"]);
        assert_eq!((ended.status(), ended.runs), (0, 0), "{mode}");
        assert_eq!(ended.field("shutdown.exit", "status"), 0, "{mode}");
        assert_eq!(ended.field("shutdown.exit", "exit_mode"), told);
        let log = ended.stderr();
        assert!(log.contains("the script was cancelled") && !log.contains("the script failed"), "{log}");
    }
}

#[test]
fn a_function_that_returns_after_a_signal_is_status_0() {
    for mode in ["none", "stop", "halt"] {
        let ended = signalled(&["--exit-mode", mode, "--until-the-end"]);
        assert_eq!((ended.status(), ended.runs), (0, 0), "{mode}");
        assert_eq!(ended.field("shutdown.exit", "status"), 0, "{mode}");
    }
}

// --- stop_mode × exit_mode ---

/// Returns what the host reports about its engine after an embedded script.
fn fate_of_the_hosts_engine(ended: &Ended) -> &'static str {
    let said = ended.stdout();
    match said.lines().last() {
        Some("the host's engine still runs") => "runs",
        Some("the host's engine was stopped") => "stopped",
        _ => "nobody was left to say",
    }
}

#[test]
fn owned_if_started_none_stops_cleans_up_and_returns() {
    let ended = script(&["--stop-mode", "if_started", "--exit-mode", "none"]);
    assert_eq!(ended.steps(), ALL_STEPS);
    assert_eq!(ended.field("shutdown.start", "owned"), true);
    assert_eq!(ended.field("shutdown.cleanup", "outcome"), "clean");
    assert_eq!((ended.status(), ended.runs), (0, 0));
}

#[test]
fn owned_if_started_stop_ends_the_process_with_the_status() {
    let ended = script(&["--exit-mode", "stop", "--fail"]);
    assert_eq!(ended.steps(), ALL_STEPS);
    assert_eq!(ended.field("shutdown.exit", "exit_mode"), "stop");
    assert_eq!((ended.status(), ended.runs), (1, 0));
}

#[test]
fn owned_if_started_halt_cleans_up_before_the_process_ends() {
    let ended = script(&["--exit-mode", "halt", "--fail"]);
    assert_eq!(ended.steps(), ALL_STEPS);
    assert_eq!(ended.field("shutdown.cleanup", "outcome"), "clean");
    assert_eq!((ended.status(), ended.runs), (1, 0));
}

#[test]
fn owned_if_started_auto_is_stop_with_no_halt_and_else_none() {
    let ended = script(&["--exit-mode", "auto", "--no-halt", "--fail"]);
    assert_eq!(ended.field("shutdown.exit", "exit_mode"), "stop");
    assert_eq!((ended.status(), ended.stderr()), (1, String::new()));
    let ended = script_with(&["--exit-mode", "auto", "--fail"], &[("SNAKEPIT_NO_HALT", "1")]);
    assert_eq!(ended.field("shutdown.exit", "exit_mode"), "stop");
    let ended = script(&["--exit-mode", "auto", "--fail"]);
    assert_eq!(ended.field("shutdown.exit", "exit_mode"), "none");
    assert_eq!(ended.stderr(), "script: it was told to fail\n");
}

#[test]
fn owned_never_leaves_the_engine_and_the_end_of_the_process_takes_it_along() {
    let ended = script(&["--stop-mode", "never"]);
    // Then main ends, and with it its runtime and the engine.
    assert_eq!(ended.steps(), ["start", "cleanup", "exit", "start", "cleanup", "exit"]);
    assert_eq!(ended.field("shutdown.cleanup", "outcome"), "nothing");
    assert_eq!(ended.events.last().map(|event| event["path"].clone()), Some("drop".into()));
    assert_eq!((ended.status(), ended.runs), (0, 0));
}

#[test]
fn embedded_if_started_none_leaves_the_hosts_engine_alone() {
    let ended = script(&["--embedded"]);
    assert_eq!(ended.steps()[..3], ["start", "cleanup", "exit"]);
    assert_eq!(ended.field("shutdown.start", "owned"), false);
    assert_eq!(ended.field("shutdown.cleanup", "outcome"), "nothing");
    assert_eq!(fate_of_the_hosts_engine(&ended), "runs");
    assert_eq!((ended.status(), ended.runs), (0, 0));
}

#[test]
fn embedded_never_leaves_the_hosts_engine_alone() {
    let ended = script(&["--embedded", "--stop-mode", "never", "--fail"]);
    assert_eq!(fate_of_the_hosts_engine(&ended), "runs");
    assert_eq!((ended.status(), ended.runs), (1, 0));
}

#[test]
fn embedded_always_stops_the_hosts_engine_although_it_is_not_owned() {
    let ended = script(&["--embedded", "--stop-mode", "always"]);
    assert_eq!(ended.steps()[..4], ALL_STEPS);
    assert_eq!(ended.field("shutdown.start", "owned"), false);
    assert_eq!(fate_of_the_hosts_engine(&ended), "stopped");
    assert_eq!((ended.status(), ended.runs), (0, 0));
}

#[test]
fn embedded_stop_and_halt_end_the_whole_process() {
    for mode in ["stop", "halt"] {
        for stop_mode in ["if_started", "always", "never"] {
            let arguments = ["--embedded", "--stop-mode", stop_mode, "--exit-mode", mode, "--fail"];
            let ended = script(&arguments);
            assert_eq!(ended.status(), 1, "{mode}, {stop_mode}");
            assert_eq!(fate_of_the_hosts_engine(&ended), "nobody was left to say", "{mode}, {stop_mode}");
        }
    }
}

#[test]
fn embedded_auto_is_none_whatever_the_arguments_say() {
    for stop_mode in ["if_started", "always", "never"] {
        let arguments = ["--embedded", "--stop-mode", stop_mode, "--exit-mode", "auto", "--no-halt"];
        let ended = script_with(&arguments, &[("SNAKEPIT_NO_HALT", "1")]);
        assert_eq!(ended.field("shutdown.exit", "exit_mode"), "none", "{stop_mode}");
        let expected = if stop_mode == "always" { "stopped" } else { "runs" };
        assert_eq!(fate_of_the_hosts_engine(&ended), expected, "{stop_mode}");
        assert_eq!(ended.status(), 0);
    }
}

// --- the events ---

#[test]
fn every_event_of_a_shutdown_says_of_which_run_it_is_and_how_it_ends() {
    let ended = script(&["--exit-mode", "stop", "--stop-mode", "always"]);
    let run = ended.field("shutdown.start", "run_id");
    assert!(run.as_str().is_some_and(|id| id.len() > 20), "{run}");
    for step in ALL_STEPS {
        let event = format!("shutdown.{step}");
        assert_eq!(ended.field(&event, "run_id"), run);
        assert_eq!(ended.field(&event, "exit_mode"), "stop");
        assert_eq!(ended.field(&event, "stop_mode"), "always");
        assert_eq!(ended.field(&event, "owned"), true);
        assert_eq!(ended.field(&event, "status"), 0);
        assert_eq!(ended.field(&event, "path"), "script");
    }
}
