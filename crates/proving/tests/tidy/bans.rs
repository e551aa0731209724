//! The bans of clippy.toml hold in every published crate.

use std::fs;

use super::{assert_none, lines_with, offenders, root};

/// Crates whose bans leave out those of clocks. Their clippy.toml says why.
const CRATES_WITH_REAL_TIME: [&str; 3] = ["custody", "cli", "snakepit"];

/// Returns the bans of a file without those of clocks. The comment before them differs.
fn bans(path: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = text.lines().skip_while(|line| !line.starts_with("disallowed-methods"));
    lines.filter(|line| !line.contains("std::time::")).map(str::to_owned).collect()
}

#[test]
fn every_crate_has_the_same_clippy_bans_except_for_clocks() {
    let of_workspace = bans("clippy.toml");
    assert!(of_workspace.len() > 10, "{of_workspace:?}");
    for name in CRATES_WITH_REAL_TIME {
        assert_eq!(bans(&format!("crates/{name}/clippy.toml")), of_workspace, "crates/{name}/clippy.toml");
    }
}

#[test]
fn the_facade_does_not_read_clocks() {
    let found = offenders(|source| {
        if source.path.starts_with("crates/snakepit/src/") {
            ["Instant::now", "SystemTime::now"].iter().flat_map(|word| lines_with(source, word)).collect()
        } else {
            vec![]
        }
    });
    assert_none(&found, "crates/snakepit/clippy.toml allows clocks for tests only");
}
