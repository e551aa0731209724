//! Rules for the source tree that no compiler checks: how files open, how long they are, what they must not contain, and
//! that the README names only what exists.

use std::collections::{BTreeMap, BTreeSet};
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
const PUBLISHED: [&str; 14] = [
    "crates/adapters/",
    "crates/cli/",
    "crates/core/",
    "crates/custody/",
    "crates/environments/",
    "crates/evals/",
    "crates/loops/",
    "crates/mailbox/",
    "crates/policy/",
    "crates/protocol/",
    "crates/settings/",
    "crates/snakepit/",
    "crates/telemetry/",
    "crates/testing/",
];

/// Crates that may hold unsafe code.
const CRATES_WITH_UNSAFE_CODE: [&str; 3] = ["crates/custody/", "crates/proving/", "crates/bench/"];

struct SourceFile {
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

fn rust_sources() -> Vec<SourceFile> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root.join("crates"), "rs", &mut paths);
    assert!(paths.len() > 5, "found only {paths:?}");
    paths
        .into_iter()
        .map(|path| SourceFile {
            text: fs::read_to_string(&path).expect("readable source"),
            path: path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned(),
        })
        .collect()
}

/// The line without its comment; good enough for code without `//` in strings.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn offenders(rule: impl Fn(&SourceFile) -> Vec<String>) -> Vec<String> {
    rust_sources().iter().flat_map(rule).collect()
}

fn lines_with(source: &SourceFile, needle: &str) -> Vec<String> {
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
        let published = PUBLISHED.iter().any(|dir| source.path.starts_with(&format!("{dir}src")));
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
        let allowed = CRATES_WITH_UNSAFE_CODE.iter().any(|dir| source.path.starts_with(dir));
        if allowed { vec![] } else { words.iter().flat_map(|word| lines_with(source, word)).collect() }
    });
    assert_none(&found, "unsafe code belongs to custody, or to the crates that are not published");
}

#[test]
fn custody_and_protocol_have_no_runtime() {
    for package in ["custody", "protocol"] {
        let manifest = root().join("crates").join(package).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("a manifest");
        for name in ["tokio", "futures", "async-std", "smol"] {
            let found = manifest.lines().any(|line| line.starts_with(name));
            assert!(!found, "{package} is synchronous, but depends on {name}");
        }
    }
}

#[test]
fn the_architecture_page_shows_the_crates_and_their_dependencies() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("docs/ARCHITECTURE.md");
    let block =
        page.split("```crates\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the graph");
    let shown: BTreeMap<String, BTreeSet<String>> = block
        .lines()
        .map(|line| {
            let (package, others) = line.split_once('→').unwrap_or_else(|| panic!("no arrow in {line:?}"));
            let others = others.split(',').map(str::trim).filter(|it| !it.is_empty());
            (package.trim().to_owned(), others.map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(shown, dependencies(), "docs/ARCHITECTURE.md (left) and the manifests (right)");
}

/// The crates of the workspace by the names of their folders, and which of each other they are built with.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata = lines_of(Command::new(cargo).args(arguments)).concat();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
    let name_of = |it: &serde_json::Value| crate_folder(it["name"].as_str().expect("a name")).to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<String> = packages.iter().map(name_of).collect();
    let built_with = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        dependencies.filter(|it| it["kind"].is_null() && it["path"].is_string()).map(name_of).collect()
    };
    let graph: BTreeMap<_, BTreeSet<String>> =
        packages.iter().map(|package| (name_of(package), built_with(package))).collect();
    assert!(graph.values().flatten().all(|name| names.contains(name)), "{graph:?}");
    graph
}

#[test]
fn pools_and_workers_know_no_adapter_and_no_protocol() {
    let dirs = ["pool", "queue", "supervisor", "worker"].map(|name| format!("crates/core/src/{name}/"));
    let names = ["snakepit_adapters", "transport", "PythonWorker", "Mock"];
    let found = offenders(|source| {
        if dirs.iter().any(|dir| source.path.starts_with(dir)) {
            names.iter().flat_map(|name| lines_with(source, name)).collect()
        } else {
            vec![]
        }
    });
    assert_none(&found, "a pool knows workers only through adapter::Handle");
}

/// Names that several types have, each with the reason.
const REPEATED_NAMES: [(&str, &str); 1] =
    [("Error", "each module's own error; the module is its first name")];

/// `portable/` has second versions of custody's files, for other systems: their types are the same things.
fn is_second_version(path: &str) -> bool {
    path.starts_with("crates/custody/src/portable/")
}

/// The type that a line defines. Associated types are indented, and are not new names.
fn defined_type(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let words = words.strip_prefix("pub ").or_else(|| words.strip_prefix("pub(crate) ")).unwrap_or(words);
    let words = words.strip_prefix("pub(super) ").unwrap_or(words);
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| words.strip_prefix(word));
    let alias = || words.strip_prefix("type ").filter(|_| !line.starts_with(' '));
    let rest = rest.or_else(alias)?;
    Some(&rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())])
}

#[test]
fn a_type_name_is_defined_once() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in rust_sources() {
        let is_published = PUBLISHED.iter().any(|room| source.path.starts_with(&format!("{room}src/")));
        let is_test = source.path.contains("/tests") || source.path.ends_with("/testing.rs");
        if !is_published || is_test || is_second_version(&source.path) {
            continue;
        }
        let before_tests = source.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or("");
        for name in before_tests.lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().insert(source.path.clone());
        }
    }
    let is_excused = |name: &str| REPEATED_NAMES.iter().any(|(excused, _)| *excused == name);
    let found: Vec<String> = places
        .iter()
        .filter(|(name, files)| files.len() > 1 && !is_excused(name))
        .map(|(name, files)| format!("{name}: {}", files.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert_none(&found, "these names are several things; rename all but one, or list them with a reason");
}

#[test]
fn a_call_knows_no_queue_no_pool_and_no_worker() {
    let above = ["adapter", "engine", "pool", "queue", "request", "supervisor", "tool", "worker"];
    let found = offenders(|source| {
        if source.path.starts_with("crates/core/src/call/") {
            above.iter().flat_map(|name| lines_with(source, &format!("crate::{name}"))).collect()
        } else {
            vec![]
        }
    });
    assert_none(&found, "a call knows its worker only as a Holder; move what it needs into call/");
}

#[test]
fn the_readme_opens_with_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let block = readme.split("```").nth(1).expect("a code block");
    let commands: Vec<&str> = block.lines().skip(1).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert!(commands[0].starts_with("cargo run ") && commands[1].starts_with("./test"), "{commands:?}");
    let before = readme.split("```").next().expect("what it is");
    let sentences = before.matches(". ").count() + before.matches(".\n").count();
    assert!(sentences <= 2, "two sentences say what it is, then come the commands: {before}");
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
    for dir in PUBLISHED {
        let manifest = root().join(dir).join("Cargo.toml");
        let mut list = Command::new(env!("CARGO"));
        list.args(["package", "--list", "--allow-dirty", "--offline", "--manifest-path"]).arg(manifest);
        let listed = lines_of(&mut list);
        assert!(listed.contains(&"src/lib.rs".to_owned()) || listed.contains(&"src/main.rs".to_owned()));
        // `Cargo.toml.orig` and its like are made by cargo and are in no directory.
        found.extend(listed.iter().filter_map(|path| misplaced(&format!("{dir}{path}"))));
    }
    assert_none(&found, "keep binaries and large files out of what is published");
}
