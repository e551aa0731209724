//! What `snakepit doctor` reports about namespaces, limits and privileges of the place where it runs.
//!
//! It must not report that all is well if no worker can start, or if it runs in a namespace with foreign process ids.

use serde_json::Value;

use crate::support::{Done, Scene, finish};

/// Runs `doctor --json` in a shell with this line. `$D` is the command.
fn doctor(scene: &Scene, line: &str) -> (Done, Value) {
    let command = format!(
        "{} doctor --json --state-dir {}",
        env!("CARGO_BIN_EXE_snakepit"),
        scene.state_dir().display()
    );
    let done = finish(scene.command("bash").args(["-c", line]).env("D", command));
    let report = serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (done, report)
}

fn finding<'a>(report: &'a Value, section: &str, name: &str) -> (&'a str, &'a str) {
    let found = report[section].as_array().and_then(|all| all.iter().find(|it| it["name"] == name));
    let found = found.unwrap_or_else(|| panic!("{name} is missing: {report:#}"));
    (found["verdict"].as_str().expect("a verdict"), found["detail"].as_str().expect("words"))
}

/// Reports whether a shell can do this here. Only root can. If not, prints that the test proved nothing.
fn possible(scene: &Scene, line: &str) -> bool {
    let possible = finish(scene.command("bash").args(["-c", line])).status.success();
    if !possible {
        eprintln!("NOT PROVEN HERE: `{line}` fails");
    }
    possible
}

#[test]
fn every_tier_is_tried_and_nothing_of_the_trials_is_left() {
    let scene = Scene::new();
    let temporary = tempfile::tempdir().expect("a directory");
    let line = format!("TMPDIR={} exec $D", temporary.path().display());
    let (done, report) = doctor(&scene, &line);
    done.assert_status(0);
    for tier in ["auto", "shim", "group"] {
        assert_eq!(finding(&report, "tiers", tier).0, "ok", "{report:#}");
    }
    assert_eq!(std::fs::read_dir(temporary.path()).expect("a directory").count(), 0, "something is left");
    scene.assert_clean();
}

#[test]
fn a_trial_that_cannot_have_a_directory_says_so() {
    let scene = Scene::new();
    let (done, report) = doctor(&scene, "TMPDIR=/nonexistent exec $D");
    done.assert_status(1);
    let (verdict, words) = finding(&report, "tiers", "auto");
    assert!(verdict == "no" && words.contains("cannot make /nonexistent/snakepit-trial-"), "{report:#}");
    scene.assert_clean();
}

#[test]
fn a_proc_mount_of_another_pid_namespace_fails_the_check() {
    let scene = Scene::new();
    if !possible(&scene, "unshare --pid --fork true") {
        return;
    }
    let (done, report) = doctor(&scene, "exec unshare --pid --fork $D");
    done.assert_status(1);
    let (verdict, words) = finding(&report, "system", "/proc");
    assert!(verdict == "no" && words.starts_with("of another PID namespace"), "{report:#}");
    let (done, report) = doctor(&scene, "exec unshare --pid --fork --mount-proc $D");
    done.assert_status(0);
    assert_eq!(finding(&report, "system", "/proc"), ("ok", "of our own PID namespace"), "{report:#}");
    scene.assert_clean();
}

#[test]
fn children_in_another_pid_namespace_are_reported() {
    let scene = Scene::new();
    if !possible(&scene, "unshare --pid true") {
        return;
    }
    let (done, report) = doctor(&scene, "exec unshare --pid $D");
    done.assert_status(1);
    let (verdict, words) = finding(&report, "system", "PID namespace");
    assert!(verdict == "no" && words.contains("--fork"), "{report:#}");
    scene.assert_clean();
}

#[test]
fn another_time_namespace_is_reported() {
    let scene = Scene::new();
    if !possible(&scene, "unshare --time --boottime 100000 true") {
        return;
    }
    let (done, report) = doctor(&scene, "exec unshare --time --boottime 100000 $D");
    done.assert_status(0);
    let (verdict, words) = finding(&report, "system", "time namespace");
    assert!(verdict == "warn" && words.contains("boottime 100000"), "{report:#}");
    scene.assert_clean();
}

#[test]
fn low_limits_are_reported() {
    let scene = Scene::new();
    let (_, report) = doctor(&scene, "ulimit -n 60; exec $D");
    let (verdict, words) = finding(&report, "limits", "open files");
    assert!(verdict == "warn" && words.starts_with("60 "), "{report:#}");
    assert_eq!(finding(&report, "limits", "file size").0, "ok", "{report:#}");
    scene.assert_clean();
}

#[test]
fn no_new_privs_is_reported() {
    let scene = Scene::new();
    if !possible(&scene, "setpriv --no-new-privs true") {
        return;
    }
    let (done, report) = doctor(&scene, "exec setpriv --no-new-privs $D");
    done.assert_status(0);
    assert_eq!(finding(&report, "system", "no_new_privs").0, "warn", "{report:#}");
    scene.assert_clean();
}
