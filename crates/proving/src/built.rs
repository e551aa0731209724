//! Programs of the workspace that a test runs and that are not this package's own.

use std::path::PathBuf;

/// A program that the build has put beside the calling test; `how` is what `cargo build` has to be told for it.
pub fn built(name: &str, how: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("deps/ is in the build's directory").join(name);
    assert!(path.exists(), "{} is not built: cargo build {how}", path.display());
    path
}

/// The program `snakepit`.
pub fn snakepit() -> PathBuf {
    built("snakepit", "-p snakepit-cli")
}
