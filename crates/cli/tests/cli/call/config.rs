//! `snakepit call` with a configuration. An invalid request is rejected before a worker starts. The error names the
//! thing, the place and the way out.
//!
//! About `crates/cli/src/shared/target.rs` and `crates/snakepit/src/config/mod.rs`.

use std::path::{Path, PathBuf};

use crate::support::{Done, Scene, call, finish, worker};

/// Creates a directory with a configuration.
fn project(scene: &Scene, config: &str) -> PathBuf {
    let dir = scene.state_dir().join("project");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::copy(worker("worker.py"), dir.join("worker.py")).expect("a worker");
    std::fs::write(dir.join("snakepit.toml"), config).expect("a configuration");
    dir
}

fn call_in(scene: &Scene, dir: &Path, words: &[&str]) -> Done {
    finish(scene.verb("call").current_dir(dir).args(words))
}

#[test]
fn the_configuration_here_is_used_and_the_first_pool_is_called() {
    let scene = Scene::new();
    let dir = project(
        &scene,
        "[pool.second]\nworker = \"worker.py\"\nenv = { MODE = \"two\" }\n\n[pool.first]\nworker = \"worker.py\"\nworkers = 3\ncurrent_dir = \"/\"\n",
    );
    let done = call_in(&scene, &dir, &["where"]);
    assert_eq!(done.assert_status(0).stdout, format!("[\"{}\",\"two\"]\n", dir.display()));
    let done = call_in(&scene, &dir, &["--pool", "first", "where"]);
    assert_eq!(done.assert_status(0).stdout, "[\"/\",null]\n");
    scene.assert_clean();
}

#[test]
fn paths_are_relative_to_the_configuration() {
    let scene = Scene::new();
    let dir = project(&scene, "[pool.a]\nworker = \"worker.py\"\n\n[pool.module]\nworker = \"worker\"\n");
    let file = dir.join("snakepit.toml");
    for pool in ["a", "module"] {
        let done = finish(
            scene
                .verb("call")
                .current_dir("/")
                .arg("-c")
                .arg(&file)
                .args(["--pool", pool, "add", "a:=1", "b:=2"]),
        );
        assert_eq!(done.assert_status(0).stdout, "3\n");
    }
    scene.assert_clean();
}

#[test]
fn a_program_of_any_language_is_started_by_its_argv() {
    let scene = Scene::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let config = format!(
        "[pool.a]\ncommand = [\"python3\", \"-m\", \"snakepit\", \"worker.py\"]\n\
         env = {{ PYTHONPATH = \"{}\", MODE = \"argv\" }}\n",
        sdk.display()
    );
    let dir = project(&scene, &config);
    let done = finish(scene.verb("call").arg("-c").arg(dir.join("snakepit.toml")).arg("where"));
    assert_eq!(done.assert_status(0).stdout, format!("[\"{}\",\"argv\"]\n", dir.display()));
    scene.assert_clean();
}

#[test]
fn a_program_or_a_worker_that_is_not_there_is_named_with_its_place() {
    let scene = Scene::new();
    for (line, missing) in [
        ("command = [\"./none\"]", "none"),
        ("worker = \"none.py\"", "none.py"),
        ("worker = \"worker.py\"\ninterpreter = \"venv/bin/python\"", "venv/bin/python"),
    ] {
        let dir = project(&scene, &format!("[pool.a]\n{line}\n"));
        let done = finish(scene.verb("call").arg("-c").arg(dir.join("snakepit.toml")).arg("add"));
        done.assert_status(125);
        assert!(done.stderr.starts_with("snakepit: pool a does not start: "), "{}", done.stderr);
        assert!(done.stderr.contains(&dir.display().to_string()), "{}", done.stderr);
        assert!(done.stderr.contains(missing), "{}", done.stderr);
    }
    scene.assert_clean();
}

#[test]
fn limits_of_the_configuration_hold() {
    let scene = Scene::new();
    let dir = project(&scene, "[pool.a]\nworker = \"worker.py\"\ncall_timeout = \"200ms\"\n");
    let done = call_in(&scene, &dir, &["wait", "seconds:=1000"]);
    done.assert_status(124);
    assert!(done.stderr.contains("wait did not answer within 200ms"), "{}", done.stderr);
    scene.assert_clean();
}

/// Asserts that the command line or the configuration is rejected before anything starts.
#[track_caller]
fn refused(done: &Done, parts: &[&str]) {
    done.assert_status(2);
    assert_eq!(done.stdout, "");
    for part in parts {
        assert!(done.stderr.contains(part), "{part:?} is not in {}", done.stderr);
    }
    assert!(
        done.stderr.lines().nth(1).is_some_and(|hint| hint.starts_with("  ")),
        "no way out: {}",
        done.stderr
    );
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused() {
    let scene = Scene::new();
    for (config, said) in [
        (
            "[pool.a]\nworker = \"worker.py\"\nworkres = 3\n",
            "snakepit.toml:3: pool.a: unknown key `workres`; did you mean `workers`?",
        ),
        (
            "[pool.a]\nworker = \"worker.py\"\ncall_timeout = 5\n",
            "snakepit.toml:3: pool.a.call_timeout: 5 has no unit",
        ),
        (
            "[pool.a]\nworker = \"worker.py\"\ncall_timeout = \"soon\"\n",
            "\"soon\" is not a duration: write it as \"5s\"",
        ),
        ("[pool.a]\nworker = \n", "snakepit.toml:2: this is not TOML"),
        ("[pool.a]\nworkers = 2\n", "snakepit.toml:1: pool.a: it does not say what its workers are"),
        ("", "snakepit.toml: there is no pool"),
    ] {
        let dir = project(&scene, config);
        refused(&call_in(&scene, &dir, &["add"]), &[said]);
    }
    scene.assert_clean();
}

#[test]
fn a_pool_that_the_configuration_does_not_have_is_refused_with_those_it_has() {
    let scene = Scene::new();
    let dir = project(&scene, "[pool.a]\nworker = \"worker.py\"\n[pool.b]\nworker = \"worker.py\"\n");
    refused(
        &call_in(&scene, &dir, &["--pool", "c", "add"]),
        &["snakepit.toml has no pool c", "its pools are a, b"],
    );
    scene.assert_clean();
}

#[test]
fn without_worker_and_configuration_both_ways_are_named() {
    let scene = Scene::new();
    refused(
        &call_in(&scene, Path::new("/"), &["add"]),
        &["no snakepit.toml here", "-w worker.py", "-c FILE"],
    );
    scene.assert_clean();
}

#[test]
fn files_that_are_not_there_are_named() {
    let scene = Scene::new();
    let done = finish(scene.verb("call").args(["-w", "/no/such/worker.py", "add"]));
    refused(&done, &["there is no worker file /no/such/worker.py"]);
    let done = finish(scene.verb("call").args(["-c", "/no/such/snakepit.toml", "add"]));
    refused(
        &done,
        &[
            "cannot read the configuration /no/such/snakepit.toml: check its path and permissions: No such file",
        ],
    );
    refused(&finish(call(&scene).args(["add", "@/no/such/args.json"])), &["/no/such/args.json"]);
    refused(&finish(call(&scene).args(["add", "a=@/no/such/text"])), &["/no/such/text"]);
    scene.assert_clean();
}

#[test]
fn a_module_that_is_not_there_shows_pythons_own_words() {
    let scene = Scene::new();
    let done = finish(scene.verb("call").args(["-w", "no_such_module", "add"]));
    done.assert_status(1);
    assert!(done.stderr.contains("ModuleNotFoundError: No module named 'no_such_module'"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn an_unavailable_python_is_reported_with_the_way_out() {
    let scene = Scene::new();
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("worker.py"), "").expect("a worker");
    let project = "[project]\nname = \"x\"\nversion = \"0\"\nrequires-python = \">=3.99\"\n";
    std::fs::write(dir.path().join("pyproject.toml"), project).expect("a project");
    for (key, said) in [
        ("python = \"3.98\"", "there is no Python 3.98 here (looked in PATH"),
        ("interpreter = \"3.98\"", "write python = \"3.98\""),
        ("python = \"3.1.99\"", "; workers with the SDK need 3.9 or later"),
        (
            "project = \"pyproject.toml\"",
            "name another Python, for example `python = \"3.99\"` in snakepit.toml",
        ),
    ] {
        let table = format!("[pool.it]\nworker = \"worker.py\"\n{key}\n");
        std::fs::write(dir.path().join("snakepit.toml"), table).expect("a configuration");
        let done = call_in(&scene, dir.path(), &["add"]);
        assert!(done.assert_status(125).stderr.contains(said), "{}", done.stderr);
    }
    let worker = dir.path().join("worker.py");
    let call = ["-w".as_ref(), worker.as_os_str(), "add".as_ref()];
    let done = finish(scene.verb("call").args(call).env("VIRTUAL_ENV", "/no/such"));
    let told = &done.assert_status(125).stderr;
    assert!(told.contains("VIRTUAL_ENV is /no/such, which has no bin/python"), "{told}");
    scene.assert_clean();
}

#[test]
fn arguments_that_cannot_be_understood_are_refused() {
    let scene = Scene::new();
    let list = scene.state_dir().join("list.json");
    std::fs::write(&list, "[1, 2]").expect("a file");
    let list = format!("@{}", list.display());
    for (argument, said) in [
        ("World", "the argument \"World\" has no name"),
        ("a:=World", "the argument a is not JSON (here)"),
        ("=1", "has no name before the ="),
        (list.as_str(), "is JSON, but not an object"),
    ] {
        refused(&finish(call(&scene).args(["add", argument])), &[said]);
    }
    refused(&finish(call(&scene).args(["add", "a=1", "a=2"])), &["the argument a is given twice"]);
    refused(&finish(call(&scene).args(["add", "a=@-", "b=@-"])), &["standard input (@-) is named twice"]);
    scene.assert_clean();
}

#[test]
fn options_that_cannot_be_understood_are_refused() {
    let scene = Scene::new();
    let both = worker("worker.py");
    for words in [
        &["--timeout", "soon", "add"][..],
        &["--timeout", "0", "add"],
        &["-c", "snakepit.toml", "add"],
        &["--pool", "a", "add"],
        &["--no-such-option", "add"],
        &[],
    ] {
        let done = finish(scene.verb("call").arg("-w").arg(&both).args(words));
        done.assert_status(2);
        assert!(done.stderr.contains("--help"), "{words:?}: {}", done.stderr);
    }
    scene.assert_clean();
}

#[test]
fn a_state_directory_that_cannot_be_used_is_a_failure_of_ours() {
    let scene = Scene::new();
    let done = finish(
        scene
            .command(env!("CARGO_BIN_EXE_snakepit"))
            .args(["call", "--state-dir", "/dev/null/x", "-w"])
            .arg(worker("worker.py"))
            .arg("add"),
    );
    done.assert_status(125);
    assert!(done.stderr.contains("/dev/null") && done.stderr.contains("--state-dir"), "{}", done.stderr);
    scene.assert_clean();
}
