//! Environments built by `uv`: equal to those of `pip`, and from lock files that only `uv` reads.
//!
//! `uv` must be in `PATH` or in `.venv`; otherwise these tests are skipped.

use std::path::{Path, PathBuf};

use snakepit::args;
use snakepit::environment::{Cache, Environment, Installer};

use crate::build::{refused, version_of};
use crate::packages::{PackageIndex, again, pool};
use crate::support::Pit;

/// Runs a test again in a process that has `uv` in its `PATH`, and otherwise what this process has.
fn with_uv(test: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin");
    let mut places = std::env::split_paths(&path).chain([own]).map(|dir| dir.join("uv"));
    let Some(uv) = places.find(|file| file.is_file()) else {
        return crate::support::unproven("uv is neither in PATH nor in .venv (./test installs it)");
    };
    // Only uv, not the Python beside it.
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(uv, dir.path().join("uv")).expect("a link");
    let dirs = [dir.path().to_owned()].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(dirs).expect("a path");
    again(test, &[("PATH", path.to_str().expect("a path"))]);
}

fn by_uv(environment: Environment) -> Environment {
    environment.installer(Installer::Uv)
}

/// Returns the version of `tiny-package` in an environment.
async fn tiny(environment: Environment) -> String {
    let pit = Pit::start(pool(environment)).await;
    let version = version_of(&pit, "tiny_package").await;
    pit.end().await;
    version
}

#[expect(clippy::disallowed_methods, reason = "a program that ends at once, before anything is tested")]
fn uv(dir: &Path, words: &[&str]) {
    let done = std::process::Command::new("uv").arg("--quiet").args(words).current_dir(dir).status();
    assert!(done.expect("uv").success(), "{words:?}");
}

/// Writes a project that depends on packages of the index. `further` is appended to its file.
fn project(dir: &Path, packages: &Path, dependencies: &str, further: &str) -> PathBuf {
    std::fs::create_dir_all(dir).expect("a directory");
    let text = format!(
        "[project]\nname = \"mine\"\nversion = \"1\"\nrequires-python = \">=3.9\"\ndependencies = [{dependencies}]\n\
         [tool.uv]\nno-index = true\nfind-links = [\"{}\"]\n{further}",
        packages.display()
    );
    std::fs::write(dir.join("pyproject.toml"), text).expect("written");
    dir.to_owned()
}

#[test]
fn uv_makes_the_same_environments_as_pip() {
    with_uv("build_steps::inside_the_same_environments");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_the_same_environments() {
    let index = PackageIndex::new();
    let list = || index.environment().requirements(["tiny-package<2"]);
    let pit = Pit::start(pool(by_uv(list()))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
    let of_path: String = pit.call("output_of", args! { program: "tiny" }).await.expect("its script");
    assert_eq!(of_path, "tiny 1.0");
    pit.end().await;
    let entries = Cache::at(index.cache()).list().expect("a list");
    let tools: Vec<_> = entries.iter().filter_map(|it| it.kept.as_ref()).map(|kept| &kept.tool).collect();
    assert!(tools.len() == 1 && tools[0].starts_with("uv "), "{tools:?}");
    // It is identified by its content, not by its tool.
    assert_eq!(tiny(list()).await, "1.0");
    assert_eq!(index.homes().len(), 1);
    index.file("base.txt", "tiny-package\n");
    index.file("limits.txt", "tiny-package<2\n");
    let files = ["-r base.txt", "-c limits.txt"];
    assert_eq!(tiny(by_uv(index.environment().requirements(files))).await, "1.0");
    index.file("slow.txt", "slow-package\n");
    let pit = Pit::start(pool(by_uv(index.environment().requirements_file("slow.txt")))).await;
    assert_eq!(version_of(&pit, "slow_package").await, "1.0");
    pit.end().await;
    project(index.path(), Path::new("packages"), "\"tiny-package<2\"", "");
    assert_eq!(tiny(by_uv(index.environment().project("pyproject.toml"))).await, "1.0");
}

#[test]
fn uv_installs_what_lock_files_say() {
    with_uv("build_steps::inside_lock_files");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_lock_files() {
    let index = PackageIndex::new();
    let packages = index.path().join("packages");
    // The lock file counts, even if newer versions have become available.
    let dir = project(&index.path().join("locked"), &packages, "\"tiny-package<2\"", "");
    uv(&dir, &["lock"]);
    let by_pip = refused(pool(index.environment().project("locked"))).await;
    assert!(by_pip.contains("is disabled here") && by_pip.contains("uv export"), "{by_pip}");
    project(&dir, &packages, "\"tiny-package\"", "");
    for way in ["locked", "locked/uv.lock", "locked/pyproject.toml"] {
        assert_eq!(tiny(by_uv(index.environment().project(way))).await, "1.0", "{way}");
    }
    assert_eq!(index.homes().len(), 1);
    uv(&dir, &["export", "--frozen", "--no-emit-project", "--format", "pylock.toml", "-o", "../pylock.toml"]);
    for way in [".", "pylock.toml"] {
        assert_eq!(tiny(by_uv(index.environment().project(way))).await, "1.0", "{way}");
    }
    assert_eq!(index.homes().len(), 2);
}

#[test]
fn local_packages_of_a_lock_file_are_found_from_its_project() {
    with_uv("build_steps::inside_lock_files_with_places");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_lock_files_with_places() {
    let index = PackageIndex::new();
    let packages = index.path().join("packages");
    let sources =
        "[tool.uv.sources]\ntiny-package = { path = \"wheels/tiny_package-1.0-py3-none-any.whl\" }\n";
    let dir = project(&index.path().join("app"), &packages, "\"tiny-package\"", sources);
    std::fs::create_dir(dir.join("wheels")).expect("a directory");
    let wheel = "tiny_package-1.0-py3-none-any.whl";
    std::fs::copy(packages.join(wheel), dir.join("wheels").join(wheel)).expect("a wheel");
    uv(&dir, &["lock"]);
    assert_eq!(tiny(by_uv(index.environment().project("app"))).await, "1.0");
}
