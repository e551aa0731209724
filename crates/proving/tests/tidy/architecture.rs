//! What docs/ARCHITECTURE.md says of the crates is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use super::{crate_folder, lines_of, root};

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
