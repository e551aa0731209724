//! `snakepit init` writes a project that runs unchanged, and overwrites nothing.

use crate::support::{Scene, finish};

#[test]
fn a_new_project_runs_unchanged() {
    let scene = Scene::new();
    let dir = scene.state_dir().join("new/project");
    let init = || scene.command(env!("CARGO_BIN_EXE_snakepit"));
    let done = finish(init().arg("init").arg(&dir));
    assert!(done.assert_status(0).stdout.contains("snakepit call add a:=1 b:=2"), "{}", done.stdout);
    let done = finish(scene.verb("call").current_dir(&dir).args(["add", "a:=1", "b:=2"]));
    assert_eq!(done.assert_status(0).stdout, "3\n");
    let done = finish(scene.verb("call").current_dir(&dir).args(["--stream", "count", "to:=3"]));
    assert_eq!(done.assert_status(0).stdout, "1\n2\n3\n");
    scene.assert_clean();
}

#[test]
fn init_overwrites_nothing() {
    let scene = Scene::new();
    let dir = scene.state_dir().join("project");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::write(dir.join("snakepit.toml"), "mine").expect("a file");
    let done = finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).arg("init").arg(&dir));
    done.assert_status(2);
    assert!(done.stderr.contains("snakepit.toml already exists"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(dir.join("snakepit.toml")).expect("the file"), "mine");
    assert!(!dir.join("worker.py").exists(), "half a project was written");
    let done = finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).args(["init", "/dev/null/x"]));
    done.assert_status(125);
    assert!(done.stderr.contains("cannot write /dev/null/x"), "{}", done.stderr);
    scene.assert_clean();
}
