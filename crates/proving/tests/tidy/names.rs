//! Names: each type has its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, rust_sources};

/// Names that several types have, each with the reason.
const REPEATED_NAMES: [(&str, &str); 1] =
    [("Error", "each module's own error; the module is its first name")];

/// Reports whether a file of `portable/` replaces a file of custody on other systems. Its types are the same things.
fn is_second_version(path: &str) -> bool {
    path.starts_with("crates/custody/src/portable/")
}

/// Returns the type that a line defines. Associated types are indented, and are not new names.
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
        if !source.is_published() || is_second_version(&source.path) {
            continue;
        }
        for name in source.without_tests().lines().filter_map(defined_type) {
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
