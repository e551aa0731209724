//! The Python SDK, carried inside the library: engine and SDK never differ in version.
//!
//! It is written into the state directory once, under the hash of its content, so that Python's compiled files are kept
//! beside it and the next start is fast.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
const HASH: &str = env!("SNAKEPIT_SDK_HASH");

/// Puts the SDK where Python finds it. Gives the file to start.
pub(super) fn install(state_dir: &Path) -> io::Result<PathBuf> {
    let home = state_dir.join(format!("python-{HASH}"));
    let entry = home.join("snakepit/__main__.py");
    if entry.exists() {
        return Ok(entry);
    }
    // Written beside its place and moved there whole: another host may do the same at this moment, and either is right.
    let draft = state_dir.join(format!("python-{HASH}.{}", std::process::id()));
    let written = write_files(&draft.join("snakepit")).and_then(|()| fs::rename(&draft, &home));
    if written.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    match written {
        Err(_) if entry.exists() => Ok(entry),
        written => written.map(|()| entry),
    }
}

fn write_files(package: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(package)?;
    FILES.iter().try_for_each(|(name, content)| fs::write(package.join(name), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_installed_once_and_whole() {
        let state = tempfile::tempdir().expect("a directory");
        let entry = install(state.path()).expect("installed");
        assert!(entry.is_file());
        assert_eq!(install(state.path()).expect("installed"), entry);
        let left: Vec<_> = fs::read_dir(state.path()).expect("read").collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(FILES.iter().all(|(name, content)| {
            fs::read_to_string(entry.with_file_name(name)).expect("a file") == *content
        }));
    }
}
