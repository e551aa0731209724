//! The keys for the Python of a pool.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::tables::{WorkerKeys, from};
use crate::environment::{Environment, Installer, Python};
use snakepit_settings::{HumanTime, settings};

/// A list, or the path of a file that contains one.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "expected a list of requirements in quotes, or the path of a file")]
pub(super) enum RequirementKeys {
    List(Vec<String>),
    File(PathBuf),
}

settings! {
    /// How packages are installed.
    #[derive(Clone)]
    pub(super) struct InstallKeys {
        /// The tool that installs: `"uv"`, `"pip"` (with venv), or `"auto"` (uv if it is in PATH).
        tool: Option<InstallerName> = None,
        /// Additional arguments of the tool.
        args: Option<Vec<String>> = None,
        /// The directory in which environments are kept. Unset: `$XDG_CACHE_HOME/snakepit/envs`.
        cache_dir: Option<PathBuf> = None,
        /// The time limit of an installation.
        timeout: Option<Duration> as Option<HumanTime> = None,
    }
    without setters
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InstallerName {
    Auto,
    Uv,
    Pip,
}

impl WorkerKeys {
    /// Checks that the keys for Python fit together. The error says what to do.
    pub(super) fn check_python(&self, mentions_install: bool) -> Result<(), &'static str> {
        if self.command.is_some() && !self.installs() && (self.python.is_some() || mentions_install) {
            return Err(
                "`python` and `install` are for a `worker` in Python, or for a `command` with `requirements` or a \
                 `project`: add one of them, or leave these keys out",
            );
        }
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if self.python.as_deref() == Some("") || self.interpreter.as_ref().is_some_and(is_empty) {
            return Err(
                "its `python` or `interpreter` is empty: give a version, a path or a name, or leave it out",
            );
        }
        if self.interpreter.is_some() && self.python.is_some() {
            return Err("it has both `interpreter` and `python`: keep `python`, which takes paths as well");
        }
        if self.requirements.is_some() && self.project.is_some() {
            return Err(
                "it has both `requirements` and `project`: keep the one that lists what is installed",
            );
        }
        Ok(())
    }

    /// Reports whether packages are installed for the pool's workers.
    pub(super) fn installs(&self) -> bool {
        self.requirements.is_some() || self.project.is_some()
    }

    pub(super) fn environment(&self, dir: &Path) -> Environment {
        let environment = Environment::new().relative_to(dir);
        let python = self.python.as_ref().map(|python| Python::read(python, dir));
        let interpreter = self.interpreter.as_ref().map(|python| Python::interpreter(from(dir, python)));
        let environment = set(environment, python.or(interpreter), Environment::python);
        let environment = match self.requirements.clone() {
            Some(RequirementKeys::List(list)) => environment.requirements(list),
            Some(RequirementKeys::File(file)) => environment.requirements_file(dir.join(file)),
            None => environment,
        };
        let environment =
            set(environment, self.project.as_ref().map(|it| dir.join(it)), Environment::project);
        let InstallKeys { tool, args, cache_dir, timeout } = self.install.clone();
        let tool = tool.map(|tool| match tool {
            InstallerName::Auto => Installer::Auto,
            InstallerName::Uv => Installer::Uv,
            InstallerName::Pip => Installer::Pip,
        });
        let environment = set(environment, tool, Environment::installer);
        let environment = set(environment, args, Environment::install_args);
        let environment = set(environment, cache_dir.map(|it| dir.join(it)), Environment::cache_dir);
        set(environment, timeout, Environment::timeout)
    }
}

/// Calls a setter if there is a value for it.
fn set<B, T>(built: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(built, value),
        None => built,
    }
}
