//! `snakepit init` writes what runs as it is; `snakepit bench` measures with nothing but python3.

mod support;

use support::{Scene, finish};

#[test]
fn what_init_writes_runs_as_it_is() {
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
    assert!(done.stderr.contains("snakepit.toml is there already"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(dir.join("snakepit.toml")).expect("the file"), "mine");
    assert!(!dir.join("worker.py").exists(), "half a project was written");
    let done = finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).args(["init", "/dev/null/x"]));
    done.assert_status(125);
    assert!(done.stderr.contains("cannot write /dev/null/x"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn bench_shows_ours_beside_the_floor() {
    let scene = Scene::new();
    let done = finish(scene.verb("bench").env("SNAKEPIT_QUICK", "1"));
    for part in
        ["64 B, one in flight", "raw echo (floor)", "target at most 1.25", "calls/s", "items/s", "Python 3."]
    {
        assert!(done.assert_status(0).stdout.contains(part), "{part:?} is not in {}", done.stdout);
    }
    let done = finish(scene.verb("bench").env("SNAKEPIT_QUICK", "1").arg("--json"));
    let json: serde_json::Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    for key in ["p50_us", "floor_p50_us", "ratio", "calls_per_second", "items_per_second"] {
        assert!(json[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {json}");
    }
    scene.assert_clean();
}
