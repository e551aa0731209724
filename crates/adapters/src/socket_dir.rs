//! The directory of a worker's socket. Only the worker's user may enter it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::secret::secret;

/// The maximum length of a socket's path, without its terminating zero.
const LONGEST: usize = 107;
const NAME: &str = "s";

/// The directory. It is removed on drop.
#[derive(Debug)]
pub(super) struct SocketDir {
    dir: PathBuf,
}

impl SocketDir {
    /// Creates the directory in the run's directory, which is removed with the run if the host dies. If that path is
    /// too long for a socket, creates it in the directory for temporary files.
    pub(super) fn new(run: Option<&Path>, kind: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{kind}-{number}");
        if let Some(run) = run.filter(|run| run.join(&name).join(NAME).as_os_str().len() <= LONGEST) {
            return Self::make(run.join(name));
        }
        // An existing directory is not used, and other users could create one with a name that they can guess.
        let name = format!("snakepit-{}", secret()?);
        Self::make(std::env::temp_dir().join(name))
    }

    fn make(dir: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&dir)?;
        let home = Self { dir };
        let length = home.socket().as_os_str().len();
        if length > LONGEST {
            let message = format!(
                "{} is too long for a socket ({length} bytes, and {LONGEST} at most): set TMPDIR to a shorter path",
                home.dir.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, message));
        }
        Ok(home)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// Removes the directory.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_directory_is_private_and_removed_on_drop() {
        let run = tempfile::tempdir().expect("a directory");
        let home = SocketDir::new(Some(run.path()), "grpc").expect("a home");
        assert!(home.socket().starts_with(run.path()));
        let mode = fs::metadata(&home.dir).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(home);
        assert_eq!(fs::read_dir(run.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_run_directory_with_a_long_path_is_replaced_by_the_temporary_directory() {
        let run = tempfile::tempdir().expect("a directory");
        let deep = run.path().join("x".repeat(100));
        fs::create_dir(&deep).expect("made");
        let home = SocketDir::new(Some(&deep), "grpc").expect("a home");
        assert!(home.socket().starts_with(std::env::temp_dir()));
        assert!(!home.socket().starts_with(&deep));
        assert!(home.socket().as_os_str().len() <= LONGEST);
    }
}
