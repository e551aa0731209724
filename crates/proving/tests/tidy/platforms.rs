//! What docs/custody.md says of other systems is what `./test` checks.

use std::collections::BTreeSet;
use std::fs;

use super::root;

/// Returns the features of the facade that `./test` type-checks for other systems.
fn checked() -> BTreeSet<String> {
    let script = fs::read_to_string(root().join("test")).expect("./test");
    let (_, function) = script.split_once("\nother_systems() {").expect("the function other_systems");
    let (_, facade) = function.split_once("cargo check -p snakepit --locked").expect("the facade");
    let (_, list) = facade.split_once("--features ").expect("its features");
    let list = list.lines().next().unwrap_or_default();
    list.split(',').map(str::to_owned).collect()
}

/// Returns the features of the facade that compile for other systems, as the table says.
fn promised() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/custody.md")).expect("docs/custody.md");
    let row = page.lines().find_map(|line| line.strip_prefix("| `snakepit` with `config`")).expect("the row");
    let features = row.split(" |").next().unwrap_or_default().split('`').skip(1).step_by(2);
    features.map(str::to_owned).chain(["config".to_owned()]).collect()
}

#[test]
fn other_systems_are_checked_with_the_features_that_the_documentation_names() {
    assert_eq!(promised(), checked(), "docs/custody.md (left) and other_systems in ./test (right)");
}
