//! `snakepit call` with workers that do not use the SDK.

use std::path::{Path, PathBuf};

use crate::support::{Scene, finish};

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file)
}

#[test]
fn a_shell_script_is_called_by_its_file() {
    let scene = Scene::new();
    let done = finish(
        scene
            .verb("call")
            .args(["--adapter", "stdio", "-w"])
            .arg(example("stdio/worker.sh"))
            .args(["greet", "name=World"]),
    );
    assert_eq!(done.assert_status(0).stdout, "Hello, World!\n");
    let done = finish(
        scene.verb("call").args(["--adapter", "stdio", "-w"]).arg(example("stdio/worker.sh")).arg("nothing"),
    );
    assert!(done.assert_status(1).stderr.contains("there is no command nothing"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn the_pools_of_the_examples_serve() {
    let scene = Scene::new();
    for pool in ["bash", "node"] {
        let config = example("stdio/snakepit.toml");
        let call = |words: &[&str]| {
            finish(scene.verb("call").arg("-c").arg(&config).args(["--pool", pool]).args(words))
        };
        assert_eq!(call(&["add", "a:=40", "b:=2"]).assert_status(0).stdout, "42\n");
        assert_eq!(call(&["--stream", "count", "n:=3"]).assert_status(0).stdout, "0\n1\n2\n");
    }
    scene.assert_clean();
}

#[test]
fn an_http_server_is_called_by_its_file() {
    let scene = Scene::new();
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snakepit/tests/workers/http_server.py");
    let config = scene.state_dir().join("http.toml");
    let text = format!("[pool.server]\nadapter = \"http\"\ncommand = [\"python3\", {server:?}, \"port\"]\n");
    std::fs::write(&config, text).expect("a configuration");
    let done = finish(scene.verb("call").arg("-c").arg(&config).args(["echo", "a:=1"]));
    assert_eq!(done.assert_status(0).stdout, "{\"a\":1}\n");
    std::fs::remove_file(config).expect("removed");
    scene.assert_clean();
}

#[test]
fn a_missing_worker_or_unknown_adapter_is_named() {
    let scene = Scene::new();
    let done = finish(scene.verb("call").args(["--adapter", "stdio", "-w", "/no/such/worker", "x"]));
    assert!(
        done.assert_status(2).stderr.contains("there is no worker file /no/such/worker"),
        "{}",
        done.stderr
    );
    let done = finish(scene.verb("call").args(["--adapter", "stdio", "x"]));
    assert!(done.assert_status(2).stderr.contains("--worker"), "{}", done.stderr);
    let done = finish(scene.verb("call").args(["--adapter", "smoke", "-w", "x", "x"]));
    assert!(done.assert_status(2).stderr.contains("stdio"), "{}", done.stderr);
    scene.assert_clean();
}
