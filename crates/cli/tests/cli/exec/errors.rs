//! A command that cannot run gets an error that names the command, and the exit status that a shell would give. Nothing
//! is left behind.
//!
//! About `crates/cli/src/exec/report.rs` and `crates/custody/src/spawn/error.rs`.

use std::os::unix::fs::PermissionsExt;

use crate::support::{self, Done, Scene, TIERS, finish, possible};

/// Asserts that the command fails with an error before it starts, in every tier.
fn refused(program: &str, status: i32) {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let done = finish(&mut scene.exec(&["--tier", tier], &[program]));
        done.assert_status(status);
        assert_clear(&done, program);
        scene.assert_clean();
    }
}

/// Asserts that the error is one line that names the thing and its cause, followed by the way out.
#[track_caller]
fn assert_clear(done: &Done, name: &str) {
    assert_eq!(done.stdout, "");
    let mut lines = done.stderr.lines();
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("snakepit: ") && first.contains(name), "{}", done.stderr);
    assert!(lines.next().is_some_and(|hint| hint.starts_with("  ")), "no way out: {}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

#[test]
fn a_command_that_does_not_exist() {
    refused("no-such-command-anywhere", 127);
    refused("/no/such/command", 127);
    refused("./no-such-command", 127);
}

#[test]
fn a_command_that_is_empty() {
    refused("", 127);
}

#[test]
fn a_file_that_may_not_be_executed() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("plain");
    std::fs::write(&file, "#!/bin/sh\n").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("its mode");
    refused(&file.display().to_string(), 126);
}

#[test]
fn a_script_whose_interpreter_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    // Bash returns 126 (bad interpreter), env and dash return 127. The file exists, so the status is 126 or that of the
    // system's ENOENT.
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let done = finish(&mut scene.exec(&["--tier", tier], &[&file]));
        assert!(matches!(done.status.code(), Some(126 | 127)), "{done:?}");
        assert_clear(&done, &file.display().to_string());
        scene.assert_clean();
    }
}

#[test]
fn a_file_that_is_no_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("noise");
    std::fs::write(&file, [0x7f, 0x00, 0x01, 0x02]).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    refused(&file.display().to_string(), 126);
}

#[test]
fn a_directory() {
    refused("/tmp", 126);
}

#[test]
fn a_path_longer_than_the_system_allows() {
    // As in bash: with a slash, it is a path that cannot be used; without one, it is a name that is not found.
    refused(&format!("/{}", "a".repeat(5000)), 126);
    refused(&format!("/tmp/{}", "a".repeat(300)), 126);
    refused(&"a".repeat(5000), 127);
}

#[test]
fn a_long_command_line_arrives_whole() {
    // The system allows 128 KiB for one argument and some megabytes for all.
    let scene = Scene::new();
    let words = vec!["x".repeat(100_000); 10];
    let mut command =
        vec!["sh".to_owned(), "-c".to_owned(), "printf %s \"$@\" | wc -c".to_owned(), "-".to_owned()];
    command.extend(words);
    let done = finish(&mut scene.exec(&[], &command));
    assert_eq!(done.assert_status(0).stdout.trim(), "1000000");
    scene.assert_clean();
}

#[test]
fn a_failure_is_also_told_as_json() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--json"], &["no-such-command-anywhere"]));
    let json = done.assert_status(127).json();
    assert_eq!(json["status"], 127);
    assert!(json["error"].as_str().is_some_and(|error| error.contains("no-such-command-anywhere")), "{json}");
    scene.assert_clean();
}

#[test]
fn one_of_many_copies_that_cannot_start_leaves_none_behind() {
    let scene = Scene::new();
    finish(&mut scene.exec(&["--copies", "3"], &["no-such-command-anywhere"])).assert_status(127);
    scene.assert_clean();
}

#[test]
fn a_wrong_command_line_is_a_failure_of_ours() {
    let scene = Scene::new();
    let wrong: [&[&str]; 9] = [
        &["--state-dir", "", "--", "true"],
        &[],
        &["--"],
        &["--tier", "steel", "--", "true"],
        &["--grace", "soon", "--", "true"],
        &["--timeout", "0", "--", "true"],
        &["--copies", "0", "--", "true"],
        &["--copies", "1000000", "--", "true"],
        &["--no-such-option", "--", "true"],
    ];
    for words in wrong {
        let done = finish(scene.verb("exec").args(words));
        done.assert_status(125);
        assert!(done.stderr.contains("--help"), "{words:?}: {}", done.stderr);
    }
    scene.assert_clean();
}

#[test]
fn help_and_version_are_no_failures() {
    let scene = Scene::new();
    for words in [&["exec", "--help"][..], &["--help"], &["--version"], &["help", "doctor"]] {
        let done = finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).args(words));
        assert!(!done.assert_status(0).stdout.is_empty());
    }
    scene.assert_clean();
}

#[test]
fn a_closed_input() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let done = finish(scene.command("bash").args(["-c", &format!("$S --tier {tier} -- cat <&-")]));
        done.assert_status(125);
        assert_clear(&done, "standard input");
        assert!(done.stderr.contains("</dev/null"), "{}", done.stderr);
        scene.assert_clean();
    }
}

#[test]
fn a_closed_input_does_not_matter_to_copies() {
    let scene = Scene::new();
    finish(scene.command("bash").args(["-c", "$S --copies 2 -- cat <&-"])).assert_status(0);
    scene.assert_clean();
}

#[test]
fn a_working_directory_that_was_removed() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let script = format!("d=$(mktemp -d); cd $d; rmdir $d; $S --tier {tier} -- sh -c 'exit 6'");
        let done = finish(scene.command("bash").args(["-c", &script]));
        done.assert_status(125);
        assert_clear(&done, "current directory");
        scene.assert_clean();
    }
}

#[test]
fn a_tier_that_cannot_be_had_is_never_replaced_by_another() {
    if !support::can_unshare(&["--user", "--map-root-user"]) {
        return;
    }
    let scene = Scene::new();
    // Root of a user namespace, but without capabilities, and with no further user namespace allowed.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces &&
                  exec setpriv --bounding-set=-all --inh-caps=-all $S --tier namespace -- true";
    let done = finish(scene.command("unshare").args(["--user", "--map-root-user", "bash", "-c", script]));
    done.assert_status(125);
    assert!(done.stderr.contains("namespace"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn a_state_directory_that_cannot_be_used() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_snakepit");
    for dir in ["/proc/no-such-place", "/dev/null"] {
        let done = finish(scene.command(program).args(["exec", "--state-dir", dir, "--", "true"]));
        done.assert_status(125);
        assert_clear(&done, dir);
        assert!(done.stderr.contains("--state-dir"), "{}", done.stderr);
    }
    for verb in ["ledger", "cleanup"] {
        let done = finish(scene.command(program).args([verb, "--state-dir", "/dev/null"]));
        done.assert_status(125);
        assert!(
            done.stderr.starts_with("snakepit: ") && done.stderr.contains("/dev/null"),
            "{}",
            done.stderr
        );
    }
    scene.assert_clean();
}
