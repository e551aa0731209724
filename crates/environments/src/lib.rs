//! What workers start with: a Python, the packages installed for it, and a share of the [hardware].
//!
//! This crate finds interpreters, builds an environment once for each content (by `uv`, or by `venv` and `pip`), and
//! owns the [`Cache`] that all hosts of a user share. It knows no pool and no worker. The crate `snakepit` re-exports
//! what users need. The files, in the order in which a build passes them:
//!
//! - `lib.rs`: [`Environment`], the description;
//! - `build.rs`: finds the environment in the cache, or builds it under a lock;
//! - `python.rs`: finds the interpreter;
//! - `recipe.rs`, `requires_python.rs`: read the requirements and the supported versions of Python. The content
//!   determines the key;
//! - `cache.rs`, `manifest.rs`: directories, locks, and the file that marks an environment as complete;
//! - `build_steps.rs`: the steps of a build, by either tool;
//! - `helper_process.rs`: runs the tools in custody;
//! - `error.rs`: errors, and what to do about them;
//! - `hardware/`: the cores and GPUs of the machine, and their assignment to workers.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod build;
mod build_steps;
mod cache;
mod error;
pub mod hardware;
mod helper_process;
mod manifest;
mod python;
mod recipe;
mod requires_python;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use build::Built;
pub use cache::{Cache, CachedEnvironment, CachedEnvironmentState, EnvironmentDetails, Pruned};
pub use error::EnvironmentError;
pub use helper_process::{HelperOutcome, HelperRunner};
pub use python::Python;
pub use python::find;
use python::identify;

/// The default timeout of a build. Large packages may take long to download.
const BUILD_TIMEOUT: Duration = Duration::from_mins(30);

/// The Python that workers run with, and the packages installed for them.
///
/// ```
/// use snakepit::environment::Environment;
///
/// let environment = Environment::new().python("3.12").requirements(["numpy>=2", "msgspec"]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Environment {
    /// The interpreter to use; see [`Environment::python`].
    pub python: Option<Python>,
    packages: Option<Packages>,
    installer: Installer,
    args: Vec<String>,
    /// The base of relative paths, and the working directory of the tools.
    dir: Option<PathBuf>,
    cache: Option<PathBuf>,
    timeout: Duration,
    /// Environment variables of the workers, which the tools get, too.
    pub variables: Vec<(OsString, OsString)>,
}

/// What to install.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Packages {
    Requirements(Vec<String>),
    RequirementsFile(PathBuf),
    Project(PathBuf),
}

/// The tool that builds environments.
///
/// ```
/// use snakepit::adapter::PythonWorker;
/// use snakepit::environment::{Environment, Installer};
///
/// // The start fails if there is no uv. By default, pip would take its place.
/// let environment = Environment::new().requirements(["numpy>=2"]).installer(Installer::Uv);
/// let pool = snakepit::python(PythonWorker::new("worker.py").environment(environment));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Installer {
    /// `uv` if it is in `PATH`, otherwise `venv` and `pip`.
    #[default]
    Auto,
    /// `uv`.
    Uv,
    /// `venv` and `pip`.
    Pip,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            python: None,
            packages: None,
            installer: Installer::Auto,
            args: Vec::new(),
            dir: None,
            cache: None,
            timeout: BUILD_TIMEOUT,
            variables: Vec::new(),
        }
    }
}

impl Environment {
    /// Creates an environment with the default Python and no packages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the Python: a version (`3.12`), the path or name of an interpreter, or the directory of a virtual
    /// environment. The default is that of `$VIRTUAL_ENV`, or else `python3` in `PATH`.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// let newest = Environment::new().python("3.13");
    /// let existing = Environment::new().python("/opt/models/venv");
    /// ```
    pub fn python(mut self, python: impl Into<Python>) -> Self {
        self.python = Some(python.into());
        self
    }

    /// Installs these requirements, written as for `pip`: `numpy>=2`. Replaces a requirements file or a project.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// let environment = Environment::new().requirements(["numpy>=2", "pillow"]);
    /// assert!(environment.installs());
    /// ```
    pub fn requirements(mut self, requirements: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.packages = Some(Packages::Requirements(requirements.into_iter().map(Into::into).collect()));
        self
    }

    /// Installs the requirements in a file, with or without hashes. Replaces a list of requirements or a project.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// let environment = Environment::new().requirements_file("requirements.txt").relative_to("/srv/models");
    /// ```
    pub fn requirements_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.packages = Some(Packages::RequirementsFile(file.into()));
        self
    }

    /// Installs the dependencies of a project, but not the project itself. Accepts a `pyproject.toml` (a `uv.lock`
    /// beside it is used), a `uv.lock`, a `pylock.toml`, a requirements file, or a directory that contains one of
    /// these. `uv.lock` and `pylock.toml` require `uv`. Replaces a list or a file of requirements.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// // The directory has a pyproject.toml and a uv.lock.
    /// let environment = Environment::new().project("workers");
    /// ```
    pub fn project(mut self, project: impl Into<PathBuf>) -> Self {
        self.packages = Some(Packages::Project(project.into()));
        self
    }

    /// Sets the tool that builds the environment.
    pub fn installer(mut self, installer: Installer) -> Self {
        self.installer = installer;
        self
    }

    /// Adds options for `pip install` or `uv pip install`, such as `--find-links`, `wheels`.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// // Without the network: all packages are wheels in a directory.
    /// let environment =
    ///     Environment::new().requirements(["numpy"]).install_args(["--no-index", "--find-links", "wheels"]);
    /// ```
    pub fn install_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the base of relative paths. The default is the working directory of the host.
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// let environment = Environment::new().project("workers").relative_to("/srv/app");
    /// assert_eq!(environment.base(), std::path::Path::new("/srv/app"));
    /// ```
    pub fn relative_to(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the directory of the cache. The default is [`Cache::default_dir`].
    ///
    /// ```
    /// use snakepit::environment::Environment;
    ///
    /// // An image is built with the environment inside.
    /// let environment = Environment::new().requirements(["numpy"]).cache_dir("/opt/snakepit/envs");
    /// ```
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache = Some(dir.into());
        self
    }

    /// Sets the timeout of a build. The default is 30 minutes.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::environment::Environment;
    ///
    /// // PyTorch is a large download.
    /// let environment = Environment::new().requirements(["torch"]).timeout(Duration::from_hours(1));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Reports whether there are packages to install, so that an environment must be built.
    pub fn installs(&self) -> bool {
        self.packages.is_some()
    }

    /// Returns the base of relative paths, as an absolute path.
    pub fn base(&self) -> PathBuf {
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        match &self.dir {
            Some(dir) if dir.is_absolute() => dir.clone(),
            Some(dir) => here().join(dir),
            None => here(),
        }
    }
}

/// Finds a program in `PATH`.
pub(crate) fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    mod errors;
}
