//! Sizes: files, folders and crates stay small enough to be read.

use std::collections::BTreeMap;
use std::fs;

use super::{PUBLISHED, assert_none, offenders, python_modules, root, rust_sources};

/// The length that one can read in one sitting. A longer file usually holds a second concept.
const LONGEST_FILE: usize = 500;

/// Files that may be longer, each with the reason.
const LONGER_FILES: [(&str, &str); 0] = [];

/// A folder with more files usually holds a second idea.
const FILES_OF_A_FOLDER: usize = 12;

/// A published crate with more lines of code is usually two crates.
const LINES_OF_A_CRATE: usize = 12_000;

#[test]
fn files_fit_a_sitting() {
    let found = offenders(|source| {
        let lines = source.text.lines().count();
        let excused = LONGER_FILES.iter().any(|(path, _)| *path == source.path);
        if lines > LONGEST_FILE && !excused {
            vec![format!("{}: {lines} lines", source.path)]
        } else {
            vec![]
        }
    });
    assert_none(&found, "look for the second concept in these files, or list them with a reason");
}

#[test]
fn a_file_that_is_no_longer_too_long_needs_no_exception() {
    for (path, reason) in LONGER_FILES {
        let lines = fs::read_to_string(root().join(path)).map_or(0, |text| text.lines().count());
        assert!(lines > LONGEST_FILE, "{path} has {lines} lines now and needs no excuse ({reason})");
    }
}

#[test]
fn a_folder_holds_one_idea() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for source in rust_sources() {
        if PUBLISHED.iter().any(|dir| source.path.starts_with(&format!("{dir}src/"))) {
            let (folder, _) = source.path.rsplit_once('/').expect("a folder");
            *folders.entry(folder.to_owned()).or_default() += 1;
        }
    }
    for module in python_modules() {
        let (folder, _) = module.rsplit_once('/').unwrap_or_default();
        *folders.entry(format!("python/snakepit/{folder}")).or_default() += 1;
    }
    let found: Vec<String> = folders
        .iter()
        .filter(|(_, files)| **files > FILES_OF_A_FOLDER)
        .map(|(folder, files)| format!("{folder}: {files} files"))
        .collect();
    assert_none(&found, "look for the second idea in these folders");
}

/// Counts code: neither blank lines, nor comments, nor tests.
fn lines_of_code(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn a_published_crate_stays_below_the_size_limit() {
    let sources = rust_sources();
    let mut found = Vec::new();
    for dir in PUBLISHED {
        let of_crate = sources.iter().filter(|source| source.path.starts_with(dir) && source.is_published());
        let lines: usize = of_crate.map(|source| lines_of_code(source.without_tests())).sum();
        assert!(lines > 0, "{dir} has no code");
        if lines > LINES_OF_A_CRATE {
            found.push(format!("{dir}: {lines} lines of code"));
        }
    }
    assert_none(&found, "look for the second crate in these crates");
}
