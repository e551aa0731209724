//! Which interpreter workers start with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use snakepit::environment::Environment;
use snakepit::{Value, args};

use crate::packages::{PackageIndex, pool, teller};
use crate::support::{Pit, lines, soon};

/// Returns where a worker of this pool runs.
async fn place(pit: &Pit, what: &str) -> Value {
    let place: Value = soon("the call", pit.call("where", args! {})).await.expect("a place");
    place.get(what).cloned().unwrap_or_else(|| panic!("{what}: {place:?}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value:?} is no text")).to_owned()
}

/// Writes a script that replaces Python, records each of its uses, and works only in a directory that it knows.
fn script(dir: &Path) -> PathBuf {
    let path = dir.join("python3");
    let code = "#!/bin/sh\necho used >> \"$(dirname \"$0\")/uses\"\n\
                [ -e chosen ] || { echo 'no version is chosen here' >&2; exit 127; }\nexec python3 \"$@\"\n";
    std::fs::write(&path, code).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_version_managers_script_the_real_interpreter_is_found_once_and_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = script(dir.path());
    std::fs::write(dir.path().join("chosen"), "").expect("a mark");
    let worker = teller().interpreter(&script).current_dir(dir.path());
    let pit = Pit::start(snakepit::python(worker).workers(3)).await;
    let executable = text(&place(&pit, "executable").await);
    assert!(Path::new(&executable).is_file() && Path::new(&executable) != script, "{executable}");
    pit.end().await;
    assert_eq!(lines(&dir.path().join("uses").to_string_lossy()), ["used"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_and_an_environment_of_ones_own_are_used_as_they_are() {
    let exact = version_of_python3();
    let (short, _) = exact.rsplit_once('.').expect("three numbers");
    for asked in [&*exact, short, "3"] {
        let pit = Pit::start(pool(Environment::new().python(asked))).await;
        let version = place(&pit, "version").await;
        pit.end().await;
        let numbers: Vec<_> = version.as_list().expect("numbers").iter().filter_map(Value::as_i64).collect();
        let found = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
        assert!(found == asked || found.starts_with(&format!("{asked}.")), "{asked}: {found}");
    }
    let index = PackageIndex::new();
    let venv = index.path().join("own");
    make_venv(&venv);
    let pit = Pit::start(pool(Environment::new().python(venv.as_path()))).await;
    assert_eq!(Path::new(&text(&place(&pit, "prefix").await)), venv);
    pit.end().await;
}

#[expect(clippy::disallowed_methods, reason = "a program that ends at once, before anything is tested")]
fn version_of_python3() -> String {
    let say = "import sys; print('.'.join(map(str, sys.version_info[:3])))";
    let said = std::process::Command::new("python3").args(["-c", say]).output().expect("python3");
    String::from_utf8(said.stdout).expect("text").trim().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a program that ends at once, before anything is tested")]
fn make_venv(path: &Path) {
    let made = std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(path).status();
    assert!(made.expect("python3").success());
}
