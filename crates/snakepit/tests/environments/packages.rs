//! Packages that exist nowhere but here, and a place for environments.

use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit::environment::{Environment, Installer};
use snakepit::{Pool, PythonWorker};
use tempfile::TempDir;

pub(crate) struct Shop {
    home: TempDir,
}

impl Shop {
    #[expect(clippy::disallowed_methods, reason = "a program that ends at once, before anything is tested")]
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let script = workers().join("packages.py");
        let made = Command::new("python3").arg(script).arg(home.path().join("packages")).status();
        assert!(made.expect("python3").success(), "no packages were made");
        Self { home }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.home.path().join("envs")
    }

    /// Made by pip, of the packages that are here alone.
    pub(crate) fn environment(&self) -> Environment {
        Environment::new()
            .installer(Installer::Pip)
            .install_args(["--no-index", "--find-links", "packages"])
            .relative_to(self.path())
            .cache_dir(self.cache())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// The directories of environments, whole or not.
    pub(crate) fn homes(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.cache()).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.path().is_dir());
        dirs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

pub(crate) fn workers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// A worker that tells where it runs.
pub(crate) fn teller() -> PythonWorker {
    PythonWorker::new(workers().join("environment.py"))
}

/// One of them.
pub(crate) fn pool(environment: Environment) -> Pool {
    Pool::python(teller().environment(environment)).workers(1)
}
