//! `snakepit exec` exits with the status of its command, in every tier.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Running, Scene, TIERS, finish, patient_shell, possible};

fn sh(script: &str) -> [String; 3] {
    ["sh".into(), "-c".into(), script.into()]
}

#[test]
fn the_status_is_that_of_the_command() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        for status in [0, 1, 7, 127, 255] {
            finish(&mut scene.exec(&["--tier", tier], &sh(&format!("exit {status}")))).assert_status(status);
        }
        scene.assert_clean();
    }
}

#[test]
fn a_command_that_a_signal_ended_gives_128_and_the_signal() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        for (signal, status) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
            let done =
                finish(&mut scene.exec(&["--tier", tier], &sh(&format!("ulimit -c 0; kill -{signal} $$"))));
            done.assert_status(status);
        }
        scene.assert_clean();
    }
}

#[test]
fn exec_passes_output_through_and_adds_nothing() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&[], &sh("echo out; echo err >&2")));
    done.assert_status(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    scene.assert_clean();
}

#[test]
fn input_is_inherited() {
    let scene = Scene::new();
    let mut exec = Running::start(scene.exec(&[], &["cat"]).stdin(Stdio::piped()));
    exec.say("hello");
    exec.expect_line("hello");
    exec.finish().assert_status(0);
    scene.assert_clean();
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let scene = Scene::new();
    let words = ["printf", "%s|", "a b", "", "--tier", "--", "-x", "\u{fc}", "*"];
    let done = finish(&mut scene.exec(&[], &words));
    assert_eq!(done.assert_status(0).stdout, "a b||--tier|--|-x|\u{fc}|*|");
    scene.assert_clean();
}

#[test]
fn the_command_knows_its_run_and_its_worker_id() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--json"], &sh("echo $SNAKEPIT_RUN_ID $SNAKEPIT_WORKER_ID")));
    let json = done.assert_status(0).json();
    assert_eq!(done.stdout.trim(), format!("{} w1", json["run"].as_str().expect("a run id")));
    scene.assert_clean();
}

#[test]
fn a_timeout_of_exec_gives_124() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        finish(&mut scene.exec(&["--tier", tier, "--timeout", "100ms"], &["sleep", "1000"]))
            .assert_status(124);
        scene.assert_clean();
    }
}

#[test]
fn a_timeout_of_exec_gives_124_even_if_kill_was_needed() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let options = ["--tier", tier, "--timeout", "100ms", "--grace", "200ms", "--json"];
        let done = finish(&mut scene.exec(&options, &patient_shell("trap '' TERM")));
        let json = done.assert_status(124).json();
        assert_eq!((&json["timed_out"], &json["copies"][0]["signal"]), (&true.into(), &9.into()), "{json}");
        assert!(done.took >= Duration::from_millis(300), "{done:?}");
        scene.assert_clean();
    }
}

#[test]
fn a_command_that_uses_its_grace_after_the_timeout_still_gives_124() {
    let scene = Scene::new();
    let done =
        finish(&mut scene.exec(&["--timeout", "100ms"], &patient_shell("trap 'echo bye; exit 0' TERM")));
    assert_eq!(done.assert_status(124).stdout, "ready\nbye\n");
    scene.assert_clean();
}

#[test]
fn a_command_that_ends_before_the_timeout_keeps_its_status() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--timeout", "1h"], &sh("exit 3")));
    assert!(done.assert_status(3).took < Duration::from_secs(10));
    scene.assert_clean();
}

#[test]
fn the_status_of_copies_is_the_first_nonzero_one_by_index() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        // The second copy ends last, but its status counts: it is the first by index that is not zero.
        let script = "case $SNAKEPIT_WORKER_ID in w1) exit 0;; w2) sleep 0.3; exit 5;; *) exit 6;; esac";
        let done = finish(&mut scene.exec(&["--tier", tier, "--copies", "4", "--json"], &sh(script)));
        let json = done.assert_status(5).json();
        let codes: Vec<_> =
            (0..4).map(|copy| json["copies"][copy]["code"].as_i64().expect("a code")).collect();
        assert_eq!(codes, [0, 5, 6, 6], "{json}");
        scene.assert_clean();
    }
}

#[test]
fn copies_that_all_succeed_give_zero() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--copies", "20"], &sh("echo $SNAKEPIT_WORKER_ID")));
    let mut ids: Vec<_> = done.assert_status(0).stdout.lines().collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    scene.assert_clean();
}

#[test]
fn copies_have_no_input() {
    let scene = Scene::new();
    // The pipe stays open, and no process reads from it.
    let mut exec = Running::start(scene.exec(&["--copies", "2"], &["cat"]).stdin(Stdio::piped()));
    let pipe = exec.stdin.take();
    let done = exec.finish();
    assert_eq!(done.assert_status(0).stdout, "");
    drop(pipe);
    scene.assert_clean();
}

#[test]
fn the_json_line_says_how_the_command_ended() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--json", "--tier", "shim"], &sh("exit 4")));
    let json = done.assert_status(4).json();
    assert_eq!(
        (&json["tier"], &json["status"], &json["timed_out"]),
        (&"shim".into(), &4.into(), &false.into())
    );
    assert_eq!((&json["killed"], &json["survivors"]), (&0.into(), &serde_json::json!([])));
    let copy = &json["copies"][0];
    assert_eq!(
        (&copy["worker"], &copy["code"], &copy["signal"]),
        (&"w1".into(), &4.into(), &serde_json::Value::Null)
    );
    assert!(
        copy["pid"].as_i64().is_some_and(|pid| pid > 1) && copy["max_rss_kib"].as_u64().is_some(),
        "{json}"
    );
    scene.assert_clean();
}
