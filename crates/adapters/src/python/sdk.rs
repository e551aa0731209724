//! The Python SDK, contained in the library, so that the versions of engine and SDK never differ.
//!
//! The SDK is written to the state directory once, under the hash of its contents. Python keeps its compiled files
//! beside it, which makes the next start fast. Each start compares the files with those in the library and replaces
//! any that differ.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::custody::{DirError, KeepError, Kept, Owner, PrivateDir};
use crate::error_text::with_causes;
use crate::telemetry::{Event, emit};

const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
const HASH: &str = env!("SNAKEPIT_SDK_HASH");

/// The directory of Python's compiled files, in each folder.
const COMPILED: &str = "__pycache__";

/// Why the SDK could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    File(#[from] KeepError),
}

/// Returns the files of the Python package `snakepit`: their paths in the package, such as `value/encode.py`, and their
/// contents.
pub fn files() -> &'static [(&'static str, &'static str)] {
    FILES
}

/// Installs the SDK below a state directory. Returns the directory to add to `PYTHONPATH`.
pub fn path(state_dir: &Path) -> io::Result<PathBuf> {
    let entry = install(state_dir)?;
    Ok(entry.ancestors().nth(2).unwrap_or(state_dir).to_owned())
}

/// Installs the SDK. Returns the file to start.
pub(super) fn install(state_dir: &Path) -> io::Result<PathBuf> {
    put_in_place(state_dir).map_err(|error| io::Error::other(with_causes(&error)))
}

fn put_in_place(state_dir: &Path) -> Result<PathBuf, InstallError> {
    let state = PrivateDir::open(state_dir, Owner::Us)?;
    // Another host may do the same at this moment. Either may win: each file is written completely or not at all, and
    // a worker is started only once all of them exist.
    let package = state.subdir(&format!("python-{HASH}"))?.subdir("snakepit")?;
    let mut is_changed = false;
    for files in FILES.chunk_by(|(one, _), (next, _)| split(one).0 == split(next).0) {
        let folder = open(&package, split(files[0].0).0)?;
        let folder = folder.as_ref().unwrap_or(&package);
        for (path, content) in files {
            let name = split(path).1;
            let kept = folder.keep_file(name, content.as_bytes())?;
            is_changed |= kept != Kept::Intact;
            if kept == Kept::Replaced {
                let path = folder.path().join(name);
                emit(Event::FileDamaged { path: path.to_string_lossy().into(), trouble: None });
            }
        }
    }
    if is_changed {
        // The compiled files may be damaged or lost, too, and Python does not check them.
        let folders: BTreeSet<_> = FILES.iter().map(|(path, _)| split(path).0).collect();
        for folder in folders {
            let _ = open(&package, folder)?.as_ref().unwrap_or(&package).remove(COMPILED);
        }
    }
    Ok(package.path().join("__main__.py"))
}

/// Splits the path of a file into its folder, which is empty for those of the package itself, and its name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Opens a folder of the package, and creates it if it is missing. Returns `None` for the package itself.
fn open(package: &PrivateDir, folder: &str) -> Result<Option<PrivateDir>, DirError> {
    let mut opened: Option<PrivateDir> = None;
    for name in folder.split('/').filter(|name| !name.is_empty()) {
        opened = Some(opened.as_ref().unwrap_or(package).subdir(name)?);
    }
    Ok(opened)
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
    fn the_sdk_is_installed_once_and_completely() {
        let state = tempfile::tempdir().expect("a directory");
        let entry = install(state.path()).expect("installed");
        assert!(entry.is_file());
        assert_eq!(install(state.path()).expect("installed"), entry);
        let left: Vec<_> = fs::read_dir(state.path()).expect("read").collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let folders: BTreeSet<_> = FILES.iter().map(|(path, _)| split(path).0).collect();
        let count = |folder| fs::read_dir(entry.with_file_name(folder)).expect("read").count();
        let entries: usize = folders.iter().map(count).sum();
        assert_eq!(entries, FILES.len() + folders.len() - 1, "the files, and each folder in the package");
        assert!(is_whole(&entry));
    }

    #[test]
    fn every_folder_is_a_package_and_its_files_stand_together() {
        let mut folders: Vec<_> = FILES.iter().map(|(path, _)| split(path).0).collect();
        folders.dedup();
        folders.retain(|folder| !folder.is_empty());
        assert!(folders.contains(&"value") && folders.is_sorted_by(|a, b| a < b), "{folders:?}");
        for folder in folders {
            let init = format!("{folder}/__init__.py");
            assert!(FILES.iter().any(|(path, _)| *path == init), "{init}");
        }
    }

    #[test]
    fn a_damaged_or_missing_file_of_the_sdk_is_restored_and_its_compiled_form_removed() {
        let state = tempfile::tempdir().expect("a directory");
        let entry = install(state.path()).expect("installed");
        let compiled = [entry.with_file_name(COMPILED), entry.with_file_name("value").join(COMPILED)];
        for dir in &compiled {
            fs::create_dir(dir).expect("a directory");
        }
        let mut text = fs::read(&entry).expect("read");
        text[0] ^= 1;
        fs::write(&entry, text).expect("damaged");
        install(state.path()).expect("installed");
        assert!(is_whole(&entry) && !compiled.iter().any(|dir| dir.exists()));
        fs::remove_file(&entry).expect("removed");
        fs::remove_dir_all(entry.with_file_name("serial")).expect("removed");
        install(state.path()).expect("installed");
        assert!(is_whole(&entry));
    }
}
