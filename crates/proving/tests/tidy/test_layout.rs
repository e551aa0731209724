//! The test programs mirror the source: the path of a file leads to its tests, or the tests name the file.

use std::collections::BTreeSet;

use super::{SourceFile, assert_none, root, rust_sources};

/// Folders and files of the test programs, and the source that each mirrors. The first that fits counts.
const MIRRORS: [(&str, &str); 12] = [
    ("crates/snakepit/tests/core/policy", "crates/policy/src"),
    ("crates/snakepit/tests/core", "crates/core/src"),
    ("crates/snakepit/tests/adapters", "crates/adapters/src"),
    ("crates/snakepit/tests/engine/config", "crates/snakepit/src/config"),
    ("crates/snakepit/tests/engine", "crates/engine/src"),
    ("crates/snakepit/tests/environments", "crates/environments/src"),
    ("crates/snakepit/tests/evals", "crates/evals/src"),
    ("crates/snakepit/tests/loops", "crates/loops/src"),
    ("crates/snakepit/tests/mailbox", "crates/mailbox/src"),
    ("crates/snakepit/tests/telemetry", "crates/telemetry/src"),
    ("crates/custody/tests/custody", "crates/custody/src"),
    ("crates/cli/tests/cli", "crates/cli/src"),
];

/// Folders of the source that no test is about, each with the reason.
const FOLDERS_WITHOUT_TESTS: [(&str, &str); 1] =
    [("crates/custody/src/keeper/sys", "system calls of the keeper, which every test of custody needs")];

/// What a file with tests contains. Other files of a test program are helpers.
const MARKS_OF_TESTS: [&str; 3] = ["#[test]", "#[tokio::test", "conformance_tests!("];

/// Returns the path of a file without its extension. `mod.rs` stands for its folder.
fn module(path: &str) -> &str {
    let path = path.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path)
}

/// Returns the source that a file of a test program mirrors, without an extension. It need not exist.
fn mirrored(path: &str) -> Option<String> {
    let module = module(path);
    MIRRORS.iter().find_map(|(tests, source)| {
        let rest = module.strip_prefix(tests).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        Some(format!("{source}{rest}"))
    })
}

/// Returns the source files and folders that the opening comment of a file names.
fn named(source: &SourceFile) -> Vec<&str> {
    let opening = source.text.lines().take_while(|line| line.starts_with("//!"));
    let spans = opening.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| span.starts_with("crates/") && span.contains("/src/")).collect()
}

/// Returns the test files of the programs, each with the source that it mirrors.
fn tests(sources: &[SourceFile]) -> Vec<(&SourceFile, String)> {
    let has_tests = |source: &&SourceFile| MARKS_OF_TESTS.iter().any(|mark| source.text.contains(mark));
    let tests = sources.iter().filter(has_tests);
    let tests: Vec<_> = tests.filter_map(|source| Some((source, mirrored(&source.path)?))).collect();
    assert!(tests.len() > 100, "found only {} files with tests", tests.len());
    tests
}

/// Returns the folders with code, each with its files. Unit tests in files of their own are left out.
fn files_of<'a>(sources: &'a [SourceFile], folder: &str) -> Vec<&'a SourceFile> {
    let of_folder = sources.iter().filter(|source| {
        let inside = source.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        inside.is_some_and(|name| !name.contains('/') && name != "tests.rs")
    });
    of_folder.collect()
}

#[test]
fn a_test_stands_where_its_subject_stands_or_names_it() {
    let sources = rust_sources();
    let modules: BTreeSet<&str> = sources.iter().map(|source| module(&source.path)).collect();
    // A folder of tests may stand for one source file: `batch.rs`, or `restarts/mod.rs` without other files.
    let is_one_file =
        |folder: &str| root().join(format!("{folder}.rs")).is_file() || files_of(&sources, folder).len() == 1;
    let mut found = Vec::new();
    for (test, mirror) in tests(&sources) {
        let (folder, _) = mirror.rsplit_once('/').expect("a folder");
        let exists = modules.contains(mirror.as_str()) || root().join(&mirror).is_dir();
        if !exists && !is_one_file(folder) && named(test).is_empty() {
            found.push(format!("{}: there is no {mirror}", test.path));
        }
    }
    assert_none(
        &found,
        "move these tests to the path of their subject, or name `crates/…/src/…` in their opening",
    );
}

#[test]
fn the_source_that_a_test_names_exists() {
    let sources = rust_sources();
    let tests = sources.iter().filter(|source| source.path.contains("/tests/"));
    let found: Vec<String> = tests
        .flat_map(|test| named(test).into_iter().map(|path| (&test.path, path)))
        .filter(|(_, path)| !root().join(path).exists())
        .map(|(test, path)| format!("{test} names {path}"))
        .collect();
    assert_none(&found, "these paths do not exist");
}

#[test]
fn every_folder_of_the_source_has_tests() {
    let sources = rust_sources();
    let tests = tests(&sources);
    // Tests of faults stand in the crate `proving`, which mirrors nothing.
    let names: BTreeSet<&str> =
        sources.iter().filter(|source| source.path.contains("/tests/")).flat_map(named).collect();
    let is_below =
        |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let folders: BTreeSet<&str> = sources
        .iter()
        .filter_map(|source| source.path.rsplit_once('/').map(|(folder, _)| folder))
        .filter(|folder| MIRRORS.iter().any(|(_, source)| folder == source || is_below(folder, source)))
        .filter(|folder| !folder.contains("/tests"))
        .filter(|folder| !files_of(&sources, folder).is_empty())
        .collect();
    let is_tested = |folder: &str| {
        let is_about = |path: &str| path == folder || is_below(path, folder);
        tests.iter().any(|(_, mirror)| is_about(mirror))
            || names.iter().any(|path| is_about(path))
            || files_of(&sources, folder).iter().any(|file| file.text.contains("#[cfg(test)]"))
    };
    let is_excused = |folder: &str| FOLDERS_WITHOUT_TESTS.iter().any(|(excused, _)| *excused == folder);
    let untested = folders.iter().filter(|folder| !is_tested(folder) && !is_excused(folder));
    let untested: Vec<String> = untested.map(|folder| (*folder).to_owned()).collect();
    assert_none(&untested, "no test mirrors or names these folders; list those that need none with a reason");
    for (folder, reason) in FOLDERS_WITHOUT_TESTS {
        assert!(!is_tested(folder), "{folder} has tests and needs no exception ({reason})");
    }
}
