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

/// Returns the tables of a walk, each as the files of its second column in their order. They are relative to the folder
/// that the section names as "All files are below `…`", or to the root of the repository. The first table has the
/// steps, and the others the files that the steps use.
fn tables(page: &str, title: &str) -> Vec<Vec<String>> {
    let section = page.split("\n## ").find_map(|it| it.strip_prefix(title));
    let section = section.unwrap_or_else(|| panic!("no section {title:?}"));
    let base = section.split_once("All files are below `").and_then(|(_, rest)| rest.split('`').next());
    let base = base.map_or_else(String::new, |base| format!("{base}/"));
    let blocks = section.split("\n\n").filter(|block| block.starts_with('|'));
    // Columns: the step, its files, what happens.
    let files_of = |row: &str| -> Vec<String> {
        let cell = row.split('|').nth(2).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(|file| format!("{base}{file}")).collect()
    };
    blocks.map(|block| block.lines().flat_map(files_of).collect()).collect()
}

/// Returns the files of a walk's steps.
fn walk(page: &str, title: &str) -> Vec<String> {
    tables(page, title).into_iter().next().unwrap_or_default()
}

/// Reports whether a name of a walk is right: that of a file, or that of a folder with a slash after it.
fn exists(name: &str) -> bool {
    let path = root().join(name);
    if name.ends_with('/') { path.is_dir() } else { path.is_file() }
}

#[test]
fn every_file_of_a_walk_exists_and_is_listed_once() {
    let page = page();
    let mut found = Vec::new();
    for (title, _) in WALKS {
        let tables = tables(&page, title);
        assert!(tables[0].len() > 5, "{title}: {tables:?}");
        let mut seen = BTreeSet::new();
        for name in tables.iter().flatten() {
            if !exists(name) {
                found.push(format!("{title}: {name} does not exist"));
            }
            if !seen.insert(name) {
                found.push(format!("{title}: {name} is listed twice"));
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
