//! The commands and examples of the README work as written.
//!
//! About `crates/cli/src/main.rs`, `crates/cli/src/exec/mod.rs` and `crates/cli/src/call/mod.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{self, Scene, finish};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_daemon_of_the_example_is_gone_when_exec_returns() {
    let example = root().join("examples/daemon.py");
    for tier in support::possible(["auto", "shim", "namespace"]) {
        let scene = Scene::new();
        let done = finish(&mut scene.exec(&["--tier", tier], &["python3", &example.to_string_lossy()]));
        done.assert_status(0);
        assert!(done.stdout.starts_with("hello from custody"), "{}", done.stdout);
        scene.assert_clean();
    }
}

#[test]
fn the_worker_of_the_example_greets_counts_and_naps() {
    let scene = Scene::new();
    let example = root().join("examples/hello.py");
    for (words, said) in [
        (&["greet", "name=World"][..], "Hello, World!\n"),
        (&["--stream", "count", "to:=3"], "1\n2\n3\n"),
        (&["nap", "seconds:=0.01"], "slept 0.01 s\n"),
    ] {
        let done = finish(scene.verb("call").arg("-w").arg(&example).args(words));
        assert_eq!(done.assert_status(0).stdout, said);
    }
    scene.assert_clean();
}

#[test]
fn the_commands_of_the_readme_are_those_of_the_program() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `snakepit "));
    let described: BTreeSet<&str> = rows.filter_map(|row| row.split([' ', '`']).next()).collect();
    let scene = Scene::new();
    let help = finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).arg("--help")).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let known: BTreeSet<&str> = listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert_eq!(described, known);
}
