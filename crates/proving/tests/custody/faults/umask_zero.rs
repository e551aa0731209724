//! A host whose umask forbids nothing. Its state is still closed to other users.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use snakepit_proving::Case;

super::each_tier!(modes);

fn modes(case: &mut Case) {
    case.options.umask = Some(0);
    let mut host = case.host_with(1, "stand");
    let mut seen = Vec::new();
    collect(&case.state(), &mut seen);
    assert!(seen.len() >= 4, "state, runs, run and ledger: {seen:?}");
    for path in seen {
        let mode = fs::symlink_metadata(&path).expect("metadata").mode();
        assert_eq!(mode & 0o077, 0, "{} is open to others: {mode:o}", path.display());
    }
    host.kill();
    case.verdict();
}

fn collect(path: &Path, seen: &mut Vec<PathBuf>) {
    seen.push(path.to_owned());
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            collect(&entry.expect("an entry").path(), seen);
        }
    }
}
