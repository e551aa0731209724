//! What docs/ARCHITECTURE.md says of the crates and of the ways through their files is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use super::{assert_none, crate_folder, lines_of, root};

/// The walks of the page: the title of each, and the most files that it may list.
///
/// A call is what readers follow first, so its walk has a limit. The others are as long as their subjects.
const WALKS: [(&str, usize); 4] = [
    ("One process, file by file", usize::MAX),
    ("One call, file by file", 12),
    ("One message, file by file", usize::MAX),
    ("From start to exit", usize::MAX),
];

fn page() -> String {
    fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("docs/ARCHITECTURE.md")
}

/// Returns the files of a walk in their order. They are relative to the folder that the section names as
/// "All files are below `…`", or to the root of the repository.
fn walk(page: &str, title: &str) -> Vec<String> {
    let section = page.split("\n## ").find_map(|it| it.strip_prefix(title));
    let section = section.unwrap_or_else(|| panic!("no section {title:?}"));
    let base = section.split_once("All files are below `").and_then(|(_, rest)| rest.split('`').next());
    let base = base.map_or_else(String::new, |base| format!("{base}/"));
    let rows = section.lines().filter(|line| line.starts_with('|'));
    // Columns: the step, its files, what happens.
    let cells = rows.filter_map(|row| row.split('|').nth(2));
    let files = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(|file| format!("{base}{file}")));
    files.collect()
}

#[test]
fn every_file_of_a_walk_exists_and_is_listed_once() {
    let page = page();
    let mut found = Vec::new();
    for (title, _) in WALKS {
        let files = walk(&page, title);
        assert!(files.len() > 5, "{title}: {files:?}");
        let mut seen = BTreeSet::new();
        for file in &files {
            if !root().join(file).is_file() {
                found.push(format!("{title}: {file} is no file"));
            }
            if !seen.insert(file) {
                found.push(format!("{title}: {file} is listed twice"));
            }
        }
    }
    assert_none(&found, "correct these walks in docs/ARCHITECTURE.md");
}

#[test]
fn a_walk_is_short_enough_to_follow() {
    let page = page();
    for (title, most) in WALKS {
        let files = walk(&page, title);
        assert!(files.len() <= most, "{title} has {} files, more than {most}: {files:#?}", files.len());
    }
}

#[test]
fn the_architecture_page_shows_the_crates_and_their_dependencies() {
    let page = page();
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

/// Returns the crates of the workspace by the names of their folders, each with the workspace crates that it depends
/// on.
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
