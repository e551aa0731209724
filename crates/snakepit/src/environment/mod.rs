//! The Python that workers run with, and what is installed beside it.
//!
//! An [`Environment`] says which interpreter is wanted and which packages. It is made once for each content, by `uv` or by
//! `venv` and `pip`, and kept in a [`Cache`] that all hosts of a user share: `python.rs` finds the interpreter, `recipe.rs`
//! reads what is asked for and names it by its content, `cache.rs` has the places, the marks and the locks, `making.rs` has
//! the steps, and `errand.rs` runs their processes in custody. Nothing here knows pools or workers.

mod cache;
mod errand;
mod error;
mod making;
mod mark;
mod obtain;
mod python;
mod recipe;
mod requires;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cache::{Cache, Entry, EntryState, Kept, Pruned};
pub(crate) use errand::Errands;
pub use error::EnvironmentError;
pub use obtain::Built;
pub use python::Python;
pub(crate) use python::find;
use python::identify;

use crate::Pool;

/// How long an environment may take to be made, unless it says otherwise: large packages come over slow lines.
const PATIENCE: Duration = Duration::from_mins(30);

/// Which Python workers run with, and what is installed for them.
///
/// ```
/// use snakepit::environment::Environment;
///
/// let environment = Environment::new().python("3.12").requirements(["numpy>=2", "msgspec"]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Environment {
    pub(crate) python: Option<Python>,
    needs: Option<Needs>,
    installer: Installer,
    args: Vec<String>,
    /// What paths are relative to, and where the tools run.
    dir: Option<PathBuf>,
    cache: Option<PathBuf>,
    timeout: Duration,
    /// What the tools find in theirs: the variables of the workers that it is for.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

/// What is to be installed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Needs {
    Requirements(Vec<String>),
    RequirementsFile(PathBuf),
    Project(PathBuf),
}

/// What makes environments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Installer {
    /// `uv` if it is in `PATH`, else `venv` and `pip`.
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
            needs: None,
            installer: Installer::Auto,
            args: Vec::new(),
            dir: None,
            cache: None,
            timeout: PATIENCE,
            variables: Vec::new(),
        }
    }
}

impl Environment {
    /// The Python that is found, with nothing installed beside what it has.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which Python: a version (`3.12`), an interpreter's path or name, or the directory of a virtual environment. Unless it
    /// is set: `$VIRTUAL_ENV`'s, or `python3` in `PATH`.
    pub fn python(mut self, python: impl Into<Python>) -> Self {
        self.python = Some(python.into());
        self
    }

    /// What is installed, as `pip` has it: `numpy>=2`. Takes the place of a file or a project.
    pub fn requirements(mut self, requirements: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.needs = Some(Needs::Requirements(requirements.into_iter().map(Into::into).collect()));
        self
    }

    /// A file that lists what is installed, with or without hashes. Takes the place of a list or a project.
    pub fn requirements_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.needs = Some(Needs::RequirementsFile(file.into()));
        self
    }

    /// A project whose dependencies are installed, without its own code: a `pyproject.toml` (with the `uv.lock` beside it,
    /// if there is one), a `uv.lock`, a `pylock.toml`, a requirements file, or a directory that has one of these. Lock files
    /// but requirements with hashes need `uv`. Takes the place of a list or a file of requirements.
    pub fn project(mut self, project: impl Into<PathBuf>) -> Self {
        self.needs = Some(Needs::Project(project.into()));
        self
    }

    /// What makes it.
    pub fn installer(mut self, installer: Installer) -> Self {
        self.installer = installer;
        self
    }

    /// Further options of `pip install` or `uv pip install`, such as `--find-links`, `wheels`.
    pub fn install_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// What its paths are relative to; the host's working directory unless it is set.
    pub fn relative_to(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Where environments are kept; see [`Cache::default_dir`] unless it is set.
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache = Some(dir.into());
        self
    }

    /// How long it may take to be made; 30 minutes unless it is set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether something is to be installed, so that an environment of its own has to be made.
    pub fn installs(&self) -> bool {
        self.needs.is_some()
    }

    pub(crate) fn base(&self) -> PathBuf {
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        match &self.dir {
            Some(dir) if dir.is_absolute() => dir.clone(),
            Some(dir) => here().join(dir),
            None => here(),
        }
    }
}

impl Pool {
    /// The Python environment of its workers, if they have one that can be made ahead.
    pub fn environment(&self) -> Option<&Environment> {
        self.adapter.environment()
    }
}

/// A program in `PATH`.
pub(crate) fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
