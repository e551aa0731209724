//! Names: each type has its own.

use std::collections::BTreeMap;

use super::{assert_none, rust_sources};

/// Names that several types have, each with the reason.
const REPEATED_NAMES: [(&str, &str); 1] =
    [("Error", "each module's own error; the module is its first name")];

/// Custody's folder whose files replace others of custody on systems that are not Linux. Only names of replaced types
/// may be defined in it again.
const REPLACEMENTS: &str = "crates/custody/src/portable/";

/// Returns the type that a line defines. Associated types are indented, and are not new names.
fn defined_type(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let words = words.strip_prefix("pub ").or_else(|| words.strip_prefix("pub(crate) ")).unwrap_or(words);
    let words = words.strip_prefix("pub(super) ").unwrap_or(words);
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| words.strip_prefix(word));
    let alias = || words.strip_prefix("type ").filter(|_| !line.starts_with(' '));
    let rest = rest.or_else(alias)?;
    // A macro's `$name` is no name.
    Some(&rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())])
        .filter(|name| !name.is_empty())
}

#[test]
fn a_type_name_is_defined_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in rust_sources().into_iter().filter(super::SourceFile::is_published) {
        for name in source.without_tests().lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(source.path.clone());
        }
    }
    let is_of_custody = |path: &String| path.starts_with("crates/custody/");
    for paths in places.values_mut() {
        if paths.iter().any(|path| is_of_custody(path) && !path.starts_with(REPLACEMENTS)) {
            paths.retain(|path| !path.starts_with(REPLACEMENTS));
        }
    }
    let is_excused = |name: &str| REPEATED_NAMES.iter().any(|(excused, _)| *excused == name);
    let found: Vec<String> = places
        .iter()
        .filter(|(name, paths)| paths.len() > 1 && !is_excused(name))
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect();
    assert_none(&found, "these names are several things; rename all but one, or list them with a reason");
}
