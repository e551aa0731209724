//! Programs of other packages that a test runs.

use std::path::PathBuf;

/// Returns the path of a program that the build has put beside the calling test. `how` is the argument of `cargo build`
/// that builds it.
pub fn built(name: &str, how: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("deps/ is in the build's directory").join(name);
    assert!(path.exists(), "{} is not built: cargo build {how}", path.display());
    path
}

/// Returns the path of the program `snakepit`.
pub fn snakepit() -> PathBuf {
    built("snakepit", "-p snakepit-cli")
}
