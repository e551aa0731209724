//! `snakepit call` prints values, streams and errors, and leaves nothing behind.
//!
//! About `crates/cli/src/call/result_format.rs`, `crates/cli/src/call/result_writer.rs`,
//! `crates/cli/src/call/arguments.rs` and `crates/cli/src/call/failure.rs`.
#![expect(clippy::disallowed_methods, reason = "the tests start real processes, as a user would")]

use std::process::Stdio;

use crate::support::{Done, Running, Scene, call, finish, worker};

#[track_caller]
fn answered(scene: &Scene, words: &[&str]) -> String {
    let done = finish(call(scene).args(words));
    done.assert_status(0);
    assert_eq!(done.stderr, "");
    done.stdout
}

#[test]
fn a_call_prints_its_value() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["add", "a:=1", "b:=2"]), "3\n");
    assert_eq!(answered(&scene, &["echo", "value=text as it is"]), "text as it is\n");
    assert_eq!(
        answered(&scene, &["echo", r#"value:={"a": [1, 2.5, null, "x"]}"#]),
        "{\"a\":[1,2.5,null,\"x\"]}\n"
    );
    scene.assert_clean();
}

#[test]
fn json_is_strict_and_keeps_large_numbers() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["--json", "echo", "value=text"]), "\"text\"\n");
    let large = "123456789012345678901234567890";
    assert_eq!(answered(&scene, &["--json", "echo", &format!("value:={large}")]), format!("{large}\n"));
    assert_eq!(
        answered(&scene, &["--json", "odd"]),
        "{\"bytes\":\"AP8=\",\"at\":\"2024-02-29T12:00:00Z\",\"nan\":null}\n"
    );
    scene.assert_clean();
}

#[test]
fn bytes_go_to_a_file_as_they_are() {
    let scene = Scene::new();
    let file = scene.state_dir().join("raw");
    let status = call(&scene)
        .arg("raw")
        .stdout(std::fs::File::create(&file).expect("a file"))
        .stderr(Stdio::inherit())
        .status()
        .expect("snakepit");
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read(&file).expect("the file"), b"\x00\xff");
    scene.assert_clean();
}

#[test]
fn a_result_that_json_cannot_express_is_an_error_that_says_so() {
    let scene = Scene::new();
    let done = finish(call(&scene).args(["--json", "keyed"]));
    done.assert_status(1);
    assert!(done.stderr.contains("the result of keyed cannot be written as JSON"), "{}", done.stderr);
    assert_eq!(answered(&scene, &["keyed"]), "{null:1}\n");
    scene.assert_clean();
}

#[test]
fn arguments_come_from_files_and_from_standard_input() {
    let scene = Scene::new();
    let file = scene.state_dir().join("args.json");
    std::fs::write(&file, r#"{"a": 1, "b": 2}"#).expect("a file");
    let at = |prefix: &str| format!("{prefix}@{}", file.display());
    assert_eq!(answered(&scene, &["add", &at("")]), "3\n");
    assert_eq!(answered(&scene, &["add", &at(""), "b:=5"]), "6\n");
    assert_eq!(answered(&scene, &["--json", "echo", &at("value=")]), "\"{\\\"a\\\": 1, \\\"b\\\": 2}\"\n");
    assert_eq!(answered(&scene, &["echo", &at("value:=")]), "{\"a\":1,\"b\":2}\n");
    let mut running = Running::start(call(&scene).args(["echo", "value=@-"]).stdin(Stdio::piped()));
    running.say("from a pipe");
    assert_eq!(running.finish().assert_status(0).stdout, "from a pipe\n\n");
    scene.assert_clean();
}

#[test]
fn a_stream_prints_one_value_per_line() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["--stream", "--json", "count", "n:=3"]), "0\n1\n2\n");
    let many = answered(&scene, &["--stream", "count", "n:=10000"]);
    assert_eq!(many.lines().last(), Some("9999"));
    assert_eq!(many.lines().count(), 10000);
    scene.assert_clean();
}

#[test]
fn a_plain_command_as_a_stream_is_one_value_and_a_generator_needs_the_stream() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["--stream", "add", "a:=1", "b:=2"]), "3\n");
    let done = finish(call(&scene).args(["count", "n:=3"]));
    done.assert_status(1);
    assert!(done.stderr.contains("add --stream"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn a_stream_that_fails_prints_what_came_before() {
    let scene = Scene::new();
    let done = finish(call(&scene).args(["--stream", "two_then_fail"]));
    done.assert_status(1);
    assert_eq!(done.stdout, "1\n2\n");
    assert!(done.stderr.contains("ValueError: no third"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn a_session_travels_with_the_call() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["--session", "s-1", "session"]), "s-1\n");
    scene.assert_clean();
}

fn failed(scene: &Scene, words: &[&str]) -> Done {
    let done = finish(call(scene).args(words));
    done.assert_status(1);
    assert_eq!(done.stdout, "");
    done
}

#[test]
fn an_exception_shows_type_message_causes_and_traceback() {
    let scene = Scene::new();
    let said = failed(&scene, &["fail", "text=why"]).stderr;
    let first = said.lines().next().unwrap_or_default();
    assert_eq!(first, "snakepit: fail: ValueError: it failed");
    assert!(said.contains("worker.py\", line ") && said.contains("in fail\n"), "{said}");
    assert!(said.contains("\ncaused by KeyError: 'why'\n"), "{said}");
    scene.assert_clean();
}

#[test]
fn an_error_is_printed_as_json_on_request() {
    let scene = Scene::new();
    let json = failed(&scene, &["--json", "fail", "text=why"]).json();
    assert_eq!(json["status"], 1);
    assert_eq!(json["error"]["type"], "ValueError");
    assert_eq!(json["error"]["cause"]["type"], "KeyError");
    assert!(json["error"]["traceback"].as_str().is_some_and(|text| text.contains("worker.py")), "{json}");
    let json = failed(&scene, &["--json", "die", "status:=7"]).json();
    assert_eq!(json["error"]["kind"], "worker_died");
    scene.assert_clean();
}

#[test]
fn a_command_that_is_not_there_shows_those_that_are() {
    let scene = Scene::new();
    let said = failed(&scene, &["ad"]).stderr;
    assert!(said.contains("did you mean add?") && said.contains("its commands are add, count, "), "{said}");
    scene.assert_clean();
}

#[test]
fn an_argument_of_the_wrong_type_shows_how_numbers_are_written() {
    let scene = Scene::new();
    let said = failed(&scene, &["add", "a=1", "b=2"]).stderr;
    assert!(said.contains("'a'") && said.contains("n:=3"), "{said}");
    scene.assert_clean();
}

#[test]
fn a_worker_that_dies_leaves_its_last_lines_in_the_error() {
    let scene = Scene::new();
    let said = failed(&scene, &["die", "status:=7"]).stderr;
    assert!(said.contains("exited with status 7") && said.contains("about to die"), "{said}");
    scene.assert_clean();
}

#[test]
fn a_worker_that_cannot_be_loaded_shows_its_traceback() {
    let scene = Scene::new();
    let done = finish(scene.verb("call").arg("-w").arg(worker("broken.py")).arg("add"));
    done.assert_status(1);
    assert!(done.stderr.contains("cannot start: RuntimeError: broken on purpose"), "{}", done.stderr);
    assert!(done.stderr.contains("broken.py\", line 3"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn output_of_a_worker_is_shown_only_on_request() {
    let scene = Scene::new();
    assert_eq!(answered(&scene, &["talk"]), "done\n");
    let done = finish(call(&scene).args(["-v", "talk"]));
    assert_eq!(done.assert_status(0).stdout, "done\n");
    for line in ["[worker-1] on stdout\n", "[worker-1] on stderr\n", "[worker-1] info: in the log\n"] {
        assert!(done.stderr.contains(line), "{line:?} is not in {}", done.stderr);
    }
    scene.assert_clean();
}

#[test]
fn a_full_standard_output_is_reported() {
    let scene = Scene::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = call(&scene)
        .args(["echo", "value=x"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .expect("snakepit");
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot write to standard output"), "{said}");
    scene.assert_clean();
}

#[test]
fn in_debug_mode_a_breakpoint_stops_and_goes_on() {
    let scene = Scene::new();
    let mut running =
        Running::start(call(&scene).args(["--debug", "stops_here", "a:=21"]).stdin(Stdio::piped()));
    running.say("p doubled + 1");
    running.say("doubled = 5");
    running.say("c");
    let done = running.finish();
    done.assert_status(0);
    assert!(done.stdout.contains("(Pdb) 43\n"), "{}", done.stdout);
    assert!(done.stdout.ends_with("5\n"), "{}", done.stdout);
    scene.assert_clean();
}

#[test]
fn in_debug_mode_output_is_shown_as_it_comes() {
    let scene = Scene::new();
    let done = finish(call(&scene).args(["--debug", "talk"]));
    done.assert_status(0);
    assert_eq!(done.stdout, "on stdout\ndone\n");
    assert!(done.stderr.contains("on stderr\n"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn control_sequences_from_a_worker_never_reach_the_terminal() {
    let scene = Scene::new();
    for form in [&["escapes"][..], &["--json", "escapes"]] {
        let done = failed(&scene, form);
        assert!(done.stderr.contains("gone"), "{}", done.stderr);
        let obeyed = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
        assert!(!done.stderr.contains(obeyed), "{:?}", done.stderr);
    }
    assert_eq!(answered(&scene, &["--json", "escaped_value"]), "\"\\u001b[2J\\u009b31m\"\n");
    // Output to a pipe is data and stays unchanged.
    assert_eq!(answered(&scene, &["escaped_value"]), "\u{1b}[2J\u{9b}31m\n");
    scene.assert_clean();
}
