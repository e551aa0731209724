//! `snakepit new-adapter` writes a crate whose tests pass unchanged, and never an incomplete crate.
#![expect(clippy::disallowed_methods, reason = "the tests start cargo, as a user would")]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Scene, finish};

/// Returns the path of the library.
fn library() -> String {
    format!("{}/../snakepit", env!("CARGO_MANIFEST_DIR"))
}

fn new_adapter(scene: &Scene, args: &[&str]) -> Command {
    let mut command = scene.command(env!("CARGO_BIN_EXE_snakepit"));
    command.arg("new-adapter").args(args).current_dir(scene.state_dir());
    command
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_crate_that_it_writes_passes_its_tests() {
    let scene = Scene::new();
    let done = finish(&mut new_adapter(&scene, &["my-lines", "--snakepit", &library()]));
    assert!(done.assert_status(0).stdout.contains("cargo test"), "{}", done.stdout);
    let dir = scene.state_dir().join("my-lines");
    assert_eq!(entries(&dir), ["Cargo.toml", "README.md", "src", "tests", "worker.py"]);
    // With the versions of this workspace, nothing is downloaded, and nothing that exists is built again.
    let lock = format!("{}/../../Cargo.lock", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(lock, dir.join("Cargo.lock")).expect("the versions");
    let program = Path::new(env!("CARGO_BIN_EXE_snakepit"));
    let target = program.ancestors().nth(2).expect("the target directory");
    let tests = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--quiet", "--test", "conformance"])
        .current_dir(&dir)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .output()
        .expect("cargo");
    let told =
        format!("{}{}", String::from_utf8_lossy(&tests.stdout), String::from_utf8_lossy(&tests.stderr));
    assert!(tests.status.success(), "{told}");
    assert!(told.contains("test result: ok. 13 passed"), "{told}");
    assert!(!told.contains("warning"), "{told}");
}

#[test]
fn invalid_arguments_are_refused_and_nothing_is_written() {
    let scene = Scene::new();
    let home = scene.state_dir();
    let library = library();
    for (args, words) in [
        (vec!["My-Lines"], "\"My-Lines\" cannot be the name of a crate: 'M' is not a lowercase letter"),
        (vec!["../up"], "cannot be the name of a crate"),
        (vec!["match"], "it is a word of the language or of cargo"),
        (vec!["lines", "--snakepit", "/dev/null"], "/dev/null is not the library snakepit"),
    ] {
        let done = finish(&mut new_adapter(&scene, &args));
        done.assert_status(2);
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
    }
    assert!(entries(home).is_empty(), "{:?}", entries(home));
    std::fs::create_dir(home.join("lines")).expect("a directory");
    let done = finish(&mut new_adapter(&scene, &["lines", "--snakepit", &library]));
    done.assert_status(2);
    assert!(done.stderr.contains("lines already exists"), "{}", done.stderr);
    let done = finish(&mut new_adapter(&scene, &["other", "--into", "/dev/null/x"]));
    done.assert_status(125);
    assert!(done.stderr.contains("cannot write /dev/null/x/other"), "{}", done.stderr);
    assert_eq!(entries(home), ["lines"]);
    assert!(entries(&home.join("lines")).is_empty(), "something was written into it");
}

#[test]
fn without_a_path_the_new_adapter_depends_on_the_version_of_the_program() {
    let scene = Scene::new();
    let done = finish(&mut new_adapter(&scene, &["--into", "deep/down", "lines"]));
    assert!(done.assert_status(0).stdout.contains("from a registry"), "{}", done.stdout);
    let manifest =
        std::fs::read_to_string(scene.state_dir().join("deep/down/lines/Cargo.toml")).expect("a file");
    let version = env!("CARGO_PKG_VERSION");
    assert!(manifest.contains(&format!("snakepit = {{ version = \"{version}\" }}")), "{manifest}");
    assert!(!manifest.contains('@'), "{manifest}");
    assert_eq!(entries(&scene.state_dir().join("deep/down")), ["lines"]);
}
