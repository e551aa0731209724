//! The house rules that no compiler checks: how files open, how long they are, what is absent, and that the
//! README names only what exists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// About one sitting. A longer file usually holds a second concept.
const LONGEST_FILE: usize = 500;

/// Files that may be longer, each with the reason.
const LONGER_FILES: [(&str, &str); 0] = [];

/// What is larger was made by a program, and belongs where that program can make it again.
const LARGEST_FILE: u64 = 200_000;

/// A file this short needs no opening words.
const SHORT_FILE: usize = 3;

/// Rooms that are published.
const PUBLISHED: [&str; 3] = ["crates/custody/", "crates/snakepit/", "crates/cli/"];

/// Rooms that may hold unsafe code.
const UNSAFE_ROOMS: [&str; 2] = ["crates/custody/", "crates/proving/"];

struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace's directory")
}

fn collect(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, extension, found);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
}

fn rust_sources() -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root.join("crates"), "rs", &mut paths);
    assert!(paths.len() > 5, "found only {paths:?}");
    paths
        .into_iter()
        .map(|path| Source {
            text: fs::read_to_string(&path).expect("readable source"),
            path: path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned(),
        })
        .collect()
}

/// The line without its comment; good enough for code without `//` in strings.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn offenders(rule: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    rust_sources().iter().flat_map(rule).collect()
}

fn lines_with(source: &Source, needle: &str) -> Vec<String> {
    source
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| code(line).contains(needle))
        .map(|(number, line)| format!("{}:{}: {}", source.path, number + 1, line.trim()))
        .collect()
}

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn every_file_opens_with_what_it_owns() {
    let found = offenders(|source| {
        let opens = source.text.starts_with("//!") || source.text.lines().count() <= SHORT_FILE;
        if opens { vec![] } else { vec![source.path.clone()] }
    });
    assert_none(&found, "open these files with a //! sentence that says what they own");
}

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
fn no_excuse_outlives_its_file() {
    for (path, reason) in LONGER_FILES {
        let lines = fs::read_to_string(root().join(path)).map_or(0, |text| text.lines().count());
        assert!(lines > LONGEST_FILE, "{path} has {lines} lines now and needs no excuse ({reason})");
    }
}

#[test]
fn nothing_published_waits_by_sleeping() {
    let found = offenders(|source| {
        let published = PUBLISHED.iter().any(|room| source.path.starts_with(&format!("{room}src")));
        if published { lines_with(source, "sleep(") } else { vec![] }
    });
    assert_none(&found, "wait for the event itself, with a deadline");
}

#[test]
fn nothing_is_left_to_do() {
    let marks = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
    let found = offenders(|source| marks.iter().flat_map(|mark| lines_with(source, mark)).collect());
    assert_none(&found, "finish or delete");
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe("];
    let found = offenders(|source| {
        let allowed = UNSAFE_ROOMS.iter().any(|room| source.path.starts_with(room));
        if allowed { vec![] } else { words.iter().flat_map(|word| lines_with(source, word)).collect() }
    });
    assert_none(&found, "unsafe code belongs to custody (or to proving)");
}

#[test]
fn custody_has_no_runtime() {
    let manifest = fs::read_to_string(root().join("crates/custody/Cargo.toml")).expect("custody's manifest");
    for name in ["tokio", "futures", "async-std", "smol"] {
        let found = manifest.lines().any(|line| line.starts_with(name));
        assert!(!found, "custody is synchronous, but depends on {name}");
    }
}

#[test]
fn pools_and_workers_know_no_adapter_and_no_protocol() {
    let rooms = ["crates/snakepit/src/pool/", "crates/snakepit/src/worker/"];
    let names = ["adapter::python", "adapter::mock", "transport", "PythonWorker", "Mock"];
    let found = offenders(|source| {
        if rooms.iter().any(|room| source.path.starts_with(room)) {
            names.iter().flat_map(|name| lines_with(source, name)).collect()
        } else {
            vec![]
        }
    });
    assert_none(&found, "a pool knows workers only through adapter::Handle");
}

#[test]
fn the_readme_opens_with_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let block = readme.split("```").nth(1).expect("a code block");
    let commands: Vec<&str> = block.lines().skip(1).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert!(commands[0].starts_with("cargo run ") && commands[1].starts_with("./test"), "{commands:?}");
    assert!(readme.lines().take(3).any(|line| line.starts_with("```")), "the commands come first");
}

#[test]
fn the_readme_names_only_what_exists() {
    let root = root();
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let words: Vec<&str> = readme.split(|c: char| c.is_whitespace() || "()[]`".contains(c)).collect();
    let mut missing = Vec::new();
    for (word, next) in words.iter().zip(words.iter().skip(1)) {
        let path = word.trim_start_matches("./").trim_end_matches([',', '.', ':']);
        let names_a_file =
            ["docs/", "examples/", "crates/"].iter().any(|it| path.starts_with(it)) || word.starts_with("./");
        if names_a_file && !root.join(path).exists() {
            missing.push((*word).to_owned());
        }
        if *word == "-p" && !root.join("crates").join(crate_folder(next)).exists() {
            missing.push(format!("-p {next}"));
        }
    }
    assert_none(&missing, "README.md names what does not exist");
}

fn crate_folder(package: &str) -> &str {
    package.strip_prefix("snakepit-").unwrap_or(package)
}

#[test]
fn changelog_has_an_unreleased_section() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    assert!(changelog.contains("## [Unreleased]"));
}

/// What a command prints, line by line.
fn lines_of(command: &mut Command) -> Vec<String> {
    let done = command.current_dir(root()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("names in UTF-8").lines().map(str::to_owned).collect()
}

/// Why a file may not stand in the tree, or be published; `None` if it may.
fn misplaced(path: &str) -> Option<String> {
    let file = root().join(path);
    let size = match fs::symlink_metadata(&file) {
        Ok(meta) if meta.is_file() => meta.len(),
        // A link has no content of its own. What is removed and not yet committed has none any more.
        _ => return None,
    };
    if size > LARGEST_FILE {
        return Some(format!("{path}: {size} bytes"));
    }
    // Old files of our own formats, which tests read.
    let is_sample = path.contains("/tests/") && path.contains("/data/");
    let is_text =
        fs::read(&file).is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0));
    (!is_text && !is_sample).then(|| format!("{path}: a binary"))
}

/// A wheel that was committed by accident would have been part of the published library.
#[test]
fn no_binary_and_no_large_file_stands_in_the_tree() {
    // New files count before they are committed; `-z` would be needed only for names that nobody should give.
    let listed =
        lines_of(Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]));
    assert!(listed.len() > 100, "git lists only {listed:?}");
    let found: Vec<String> = listed.iter().filter_map(|path| misplaced(path)).collect();
    assert_none(&found, "keep binaries and large files out of the tree");
}

/// What git ignores, or a link leads to, can be published as well.
#[test]
fn no_binary_and_no_large_file_is_published() {
    let mut found = Vec::new();
    for room in PUBLISHED {
        let manifest = root().join(room).join("Cargo.toml");
        let mut list = Command::new(env!("CARGO"));
        list.args(["package", "--list", "--allow-dirty", "--offline", "--manifest-path"]).arg(manifest);
        let listed = lines_of(&mut list);
        assert!(listed.contains(&"src/lib.rs".to_owned()) || listed.contains(&"src/main.rs".to_owned()));
        // `Cargo.toml.orig` and its like are made by cargo and are in no directory.
        found.extend(listed.iter().filter_map(|path| misplaced(&format!("{room}{path}"))));
    }
    assert_none(&found, "keep binaries and large files out of what is published");
}
