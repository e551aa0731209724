//! `snakepit sdk`: a Python that the engine does not start can import the SDK.
#![expect(
    clippy::disallowed_methods,
    reason = "making an environment may take longer than a test waits for anything"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Scene, finish};

/// Creates an environment. With pip, that takes long on a busy machine.
fn venv(scene: &Scene, dir: &Path, options: &[&str]) -> PathBuf {
    let venv = dir.join("venv");
    let mut command = scene.command("python3");
    let made = command.args(["-m", "venv"]).args(options).arg(&venv).status().expect("python3");
    assert!(made.success());
    venv
}

fn sdk(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.command(env!("CARGO_BIN_EXE_snakepit"));
    command.arg("sdk").args(words).env_remove("VIRTUAL_ENV").env("SNAKEPIT_STATE_DIR", scene.state_dir());
    command
}

const IMPORT: [&str; 3] =
    ["-I", "-c", "import snakepit; print(snakepit.__version__, callable(snakepit.command))"];

#[test]
fn the_sdk_is_installed_into_an_environment_reinstalled_and_removed_by_pip() {
    let scene = Scene::new();
    let dir = tempfile::tempdir().expect("a directory");
    let venv = venv(&scene, dir.path(), &[]);
    let python = venv.join("bin/python").display().to_string();
    for _ in 0..2 {
        let done = finish(sdk(&scene, &["install", "--into"]).arg(&venv));
        assert!(done.assert_status(0).stdout.starts_with("snakepit-worker "), "{done:?}");
        let done = finish(scene.command(&python).args(IMPORT));
        assert_eq!(done.assert_status(0).stdout, format!("{} True\n", env!("CARGO_PKG_VERSION")));
    }
    let done = finish(scene.command(&python).args(["-m", "pip", "list", "--format=freeze"]));
    assert!(done.assert_status(0).stdout.contains("snakepit-worker=="), "{done:?}");
    finish(scene.command(&python).args(["-m", "pip", "uninstall", "-y", "-q", "snakepit-worker"]))
        .assert_status(0);
    finish(scene.command(&python).args(IMPORT)).assert_status(1);
    // Without a name, the command uses the active environment.
    finish(sdk(&scene, &["install"]).env("VIRTUAL_ENV", &venv)).assert_status(0);
    finish(scene.command(&python).args(IMPORT)).assert_status(0);
}

#[test]
fn another_package_of_that_name_is_not_touched() {
    let scene = Scene::new();
    let dir = tempfile::tempdir().expect("a directory");
    let venv = venv(&scene, dir.path(), &["--without-pip"]);
    let python = venv.join("bin/python").display().to_string();
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let site = finish(scene.command(&python).args(["-c", code])).assert_status(0).stdout.trim().to_owned();
    let theirs = Path::new(&site).join("snakepit");
    std::fs::create_dir(&theirs).expect("a package");
    std::fs::write(theirs.join("__init__.py"), "theirs = True").expect("a package");
    let done = finish(sdk(&scene, &["install", "--into"]).arg(&venv));
    assert!(done.assert_status(125).stderr.contains("pip uninstall snakepit"), "{done:?}");
    assert!(theirs.join("__init__.py").exists());
}

#[test]
fn a_directory_that_is_no_environment_is_named_with_the_way_out() {
    let scene = Scene::new();
    let done = finish(&mut sdk(&scene, &["install"]));
    assert!(done.assert_status(125).stderr.contains("--into VENV"), "{done:?}");
    let done = finish(&mut sdk(&scene, &["install", "--into", "/nowhere"]));
    assert!(done.assert_status(125).stderr.contains("/nowhere is not a virtual environment"), "{done:?}");
}

#[test]
fn a_path_makes_the_import_work_without_an_installation() {
    let scene = Scene::new();
    let path = finish(&mut sdk(&scene, &["path"])).assert_status(0).stdout.trim().to_owned();
    let done = finish(scene.command("python3").args(&IMPORT[1..]).env("PYTHONPATH", &path));
    done.assert_status(0);
}

/// A Python without the SDK prints how to get it, whether a wrapper script starts it or it runs as a worker of lines.
#[test]
fn a_worker_without_the_sdk_says_how_to_install_it() {
    let scene = Scene::new();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("worker.py");
    std::fs::write(&file, "import snakepit\n").expect("a worker");
    for words in [vec!["call", "--adapter", "stdio", "-w"], vec!["call", "--adapter", "http", "-w"]] {
        let mut command = scene.command(env!("CARGO_BIN_EXE_snakepit"));
        command
            .args(words)
            .arg(&file)
            .arg("add")
            .env("SNAKEPIT_STATE_DIR", scene.state_dir())
            .env_remove("PYTHONPATH");
        let done = finish(&mut command);
        assert!(done.stderr.contains("snakepit sdk install --into VENV"), "{done:?}");
    }
}
