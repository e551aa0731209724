//! Python packages and a cache directory for the tests of environments.

use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit::PoolOptions;
use snakepit::adapter::PythonWorker;
use snakepit::environment::{Environment, Installer};
use tempfile::TempDir;

/// The variables that decide about threads and GPUs if the host has them.
const DECIDING: [&str; 8] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
];

/// Runs a test of these again in a process with other variables, since all tests of a process share its variables.
#[expect(clippy::disallowed_methods, reason = "the tests of a host need a host of their own")]
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    for name in DECIDING {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).args(["--exact", "--ignored", "--nocapture", test]);
    let output = command.output().expect("the test again");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

pub(crate) struct PackageIndex {
    home: TempDir,
}

impl PackageIndex {
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

    /// Returns an environment that pip builds, only from the packages here.
    pub(crate) fn environment(&self) -> Environment {
        Environment::new()
            .installer(Installer::Pip)
            .install_args(["--no-index", "--no-cache-dir", "--find-links", "packages"])
            .relative_to(self.path())
            .cache_dir(self.cache())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Returns the directories of environments, complete or not.
    pub(crate) fn homes(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.cache()).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.path().is_dir());
        dirs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

pub(crate) fn workers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// Returns a worker that reports where it runs.
pub(crate) fn teller() -> PythonWorker {
    PythonWorker::new(workers().join("environment.py"))
}

/// Returns a pool of one such worker.
pub(crate) fn pool(environment: Environment) -> PoolOptions {
    snakepit::python(teller().environment(environment)).workers(1)
}
