//! The Python SDK, carried inside the library: engine and SDK never differ in version.
//!
//! It is written into the state directory once, under the hash of its content, so that Python's compiled files are kept
//! beside it and the next start is fast. Each start compares it with what the library carries, and replaces what differs.

use std::io;
use std::path::{Path, PathBuf};

use crate::causes::with_causes;
use crate::custody::{DirError, KeepError, Kept, Owner, PrivateDir};
use crate::telemetry::{Event, emit};

const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
const HASH: &str = env!("SNAKEPIT_SDK_HASH");

/// What Python has compiled of it.
const COMPILED: &str = "__pycache__";

/// Why the SDK is not where it should be.
#[derive(Debug, thiserror::Error)]
enum InstallError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    File(#[from] KeepError),
}

/// The files of the package `snakepit` of Python: their names and what is in them.
pub fn files() -> &'static [(&'static str, &'static str)] {
    FILES
}

/// Puts the SDK below a state directory, and gives the directory to name in `PYTHONPATH`.
pub fn path(state_dir: &Path) -> io::Result<PathBuf> {
    let entry = install(state_dir)?;
    Ok(entry.ancestors().nth(2).unwrap_or(state_dir).to_owned())
}

/// Puts the SDK where Python finds it. Gives the file to start.
pub(super) fn install(state_dir: &Path) -> io::Result<PathBuf> {
    put_in_place(state_dir).map_err(|error| io::Error::other(with_causes(&error)))
}

fn put_in_place(state_dir: &Path) -> Result<PathBuf, InstallError> {
    let state = PrivateDir::open(state_dir, Owner::Us)?;
    // Another host may do the same at this moment, and either is right: each file is there as a whole or not at all, and
    // a worker is started when all of them are.
    let package = state.subdir(&format!("python-{HASH}"))?.subdir("snakepit")?;
    let mut is_damaged = false;
    for (name, content) in FILES {
        if package.keep_file(name, content.as_bytes())? == Kept::Replaced {
            is_damaged = true;
            let path = package.path().join(name);
            emit(Event::FileDamaged { path: path.to_string_lossy().into(), trouble: None });
        }
    }
    if is_damaged {
        // Whatever has damaged the one may have damaged the other, and Python does not look.
        let _ = package.remove(COMPILED);
    }
    Ok(package.path().join("__main__.py"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn is_whole(entry: &Path) -> bool {
        FILES.iter().all(|(name, content)| {
            fs::read_to_string(entry.with_file_name(name)).expect("a file") == *content
        })
    }

    #[test]
    fn it_is_installed_once_and_whole() {
        let state = tempfile::tempdir().expect("a directory");
        let entry = install(state.path()).expect("installed");
        assert!(entry.is_file());
        assert_eq!(install(state.path()).expect("installed"), entry);
        let left: Vec<_> = fs::read_dir(state.path()).expect("read").collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(fs::read_dir(entry.with_file_name("")).expect("read").count(), FILES.len());
        assert!(is_whole(&entry));
    }

    #[test]
    fn a_damaged_or_missing_file_is_put_back_and_what_python_made_of_it_goes() {
        let state = tempfile::tempdir().expect("a directory");
        let entry = install(state.path()).expect("installed");
        let compiled = entry.with_file_name(COMPILED);
        fs::create_dir(&compiled).expect("a directory");
        let mut text = fs::read(&entry).expect("read");
        text[0] ^= 1;
        fs::write(&entry, text).expect("damaged");
        install(state.path()).expect("installed");
        assert!(is_whole(&entry) && !compiled.exists());
        fs::remove_file(&entry).expect("removed");
        install(state.path()).expect("installed");
        assert!(is_whole(&entry));
    }
}
