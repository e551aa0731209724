//! The folders of `core` point one way.

use std::collections::BTreeMap;
use std::fs;

use super::{assert_none, code, lines_with, offenders, root, rust_sources};

/// The folders of `core`, from the bottom up.
const LAYERS_OF_CORE: [&str; 10] =
    ["call", "tool", "output", "adapter", "options", "worker", "queue", "request", "supervisor", "pool"];

#[test]
fn the_folders_of_core_point_one_way() {
    let found = offenders(|source| {
        let Some(layer) = layer_of(&source.path) else { return vec![] };
        let above = LAYERS_OF_CORE[layer + 1..].iter();
        above.flat_map(|name| lines_with(source, &format!("crate::{name}"))).collect()
    });
    assert_none(&found, "a folder of core knows only those before it in LAYERS_OF_CORE");
}

/// Returns the position of a file's folder in [`LAYERS_OF_CORE`].
fn layer_of(path: &str) -> Option<usize> {
    let inside = path.strip_prefix("crates/core/src/")?;
    LAYERS_OF_CORE.iter().position(|layer| inside.strip_prefix(layer).is_some_and(is_of_module))
}

/// Reports whether the rest of a path shows that the name before it is that of a module.
fn is_of_module(rest: &str) -> bool {
    rest == ".rs" || rest.starts_with('/')
}

#[test]
fn every_folder_of_core_has_a_layer() {
    let entries = fs::read_dir(root().join("crates/core/src")).expect("crates/core/src");
    let folders = entries.map(|entry| entry.expect("an entry")).filter(|entry| entry.path().is_dir());
    let names: Vec<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let found: Vec<String> = names
        .into_iter()
        .filter(|name| name != "tests" && !LAYERS_OF_CORE.contains(&name.as_str()))
        .collect();
    assert_none(&found, "add these folders to LAYERS_OF_CORE");
}

/// Names of methods that types of the standard library have, too.
const COMMON_METHODS: [&str; 3] = ["as_ref", "as_str", "is_empty"];

/// Returns the names of all functions and methods.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| code(line).split_once("fn "));
    names.filter_map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
}

/// A folder may add methods to a type of a folder below, for itself and for the folders above. A method that is used
/// below the folder that has it is an import that no `use` shows.
#[test]
fn no_folder_of_core_uses_a_method_of_a_folder_above() {
    let sources: Vec<_> = rust_sources()
        .into_iter()
        .filter(super::SourceFile::is_published)
        .filter_map(|source| Some((layer_of(&source.path)?, source)))
        .collect();
    // The lowest folder that has a method of this name.
    let mut lowest: BTreeMap<&str, usize> = BTreeMap::new();
    for (layer, source) in &sources {
        for method in functions(source.without_tests()) {
            let known = lowest.entry(method).or_insert(*layer);
            *known = (*known).min(*layer);
        }
    }
    let mut found = Vec::new();
    for (layer, source) in &sources {
        // A single word, such as `get`, says too little about the type.
        let is_above = |method: &str, of: usize| {
            of > *layer && method.contains('_') && !COMMON_METHODS.contains(&method)
        };
        for (method, _) in lowest.iter().filter(|(method, of)| is_above(method, **of)) {
            found.extend(lines_with(source, &format!(".{method}(")));
        }
    }
    assert_none(&found, "these methods are defined in a folder above: move them down");
}
