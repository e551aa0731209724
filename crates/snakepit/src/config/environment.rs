//! The keys about the Python of a pool, and about the hardware that its workers use.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::supervision::set;
use super::tables::{PoolKeys, from};
use super::units::Time;
use crate::environment::{Environment, Installer, Python};
use crate::{Gpus, Pool, Threads};

/// A list, or a file that has one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of requirements, or the path of a file")]
pub(super) enum RequirementKeys {
    List(Vec<String>),
    File(PathBuf),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstallKeys {
    tool: Option<InstallerName>,
    args: Option<Vec<String>>,
    cache_dir: Option<PathBuf>,
    timeout: Option<Time>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InstallerName {
    Auto,
    Uv,
    Pip,
}

/// A word, or the names of devices.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"one-per-worker\", \"all\", or a list such as [0, 1]")]
pub(super) enum GpuKeys {
    Word(GpuWord),
    List(Vec<GpuName>),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GpuWord {
    OnePerWorker,
    All,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum GpuName {
    Number(u32),
    Name(String),
}

/// A word, or a number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"auto\", \"off\", or a number of threads")]
pub(super) enum ThreadKeys {
    Word(ThreadWord),
    Number(std::num::NonZeroUsize),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ThreadWord {
    Auto,
    Off,
}

impl PoolKeys {
    /// What is wrong with what is said about Python, if something is.
    pub(super) fn check_python(&self, is_command: bool) -> Result<(), &'static str> {
        if is_command && !self.installs() && (self.python.is_some() || self.install.is_some()) {
            return Err(
                "`python` and `install` are for a `worker` in Python, or for a `command` with `requirements` or a \
                 `project`",
            );
        }
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if self.python.as_deref() == Some("") || self.interpreter.as_ref().is_some_and(is_empty) {
            return Err(
                "its `python` (or `interpreter`) is empty: name a version, a path or a name, or leave it out",
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
        if self.gpus.is_some() && self.devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
            return Err("it has both `gpus` and `devices`: keep one");
        }
        Ok(())
    }

    /// Whether something is to be installed for it.
    pub(super) fn installs(&self) -> bool {
        self.requirements.is_some() || self.project.is_some()
    }

    pub(super) fn environment(&mut self, dir: &Path) -> Environment {
        let environment = Environment::new().relative_to(dir);
        let python = self.python.take().map(|python| Python::read(&python, dir));
        let interpreter = self.interpreter.take().map(|python| Python::interpreter(from(dir, &python)));
        let environment = set(environment, python.or(interpreter), Environment::python);
        let environment = match self.requirements.take() {
            Some(RequirementKeys::List(list)) => environment.requirements(list),
            Some(RequirementKeys::File(file)) => environment.requirements_file(dir.join(file)),
            None => environment,
        };
        let environment = set(environment, self.project.take().map(|it| dir.join(it)), Environment::project);
        let InstallKeys { tool, args, cache_dir, timeout } = self.install.take().unwrap_or_default();
        let tool = tool.map(|tool| match tool {
            InstallerName::Auto => Installer::Auto,
            InstallerName::Uv => Installer::Uv,
            InstallerName::Pip => Installer::Pip,
        });
        let environment = set(environment, tool, Environment::installer);
        let environment = set(environment, args, Environment::install_args);
        let environment = set(environment, cache_dir.map(|it| dir.join(it)), Environment::cache_dir);
        set(environment, timeout.map(|Time(time)| time), Environment::timeout)
    }

    /// Sets what is said about hardware.
    pub(super) fn equip(&mut self, pool: Pool) -> Pool {
        let gpus = self.gpus.take().map(|gpus| match gpus {
            GpuKeys::Word(GpuWord::OnePerWorker) => Gpus::OnePerWorker,
            GpuKeys::Word(GpuWord::All) => Gpus::All,
            GpuKeys::List(list) => Gpus::These(
                list.into_iter()
                    .map(|name| match name {
                        GpuName::Number(number) => number.to_string(),
                        GpuName::Name(name) => name,
                    })
                    .collect(),
            ),
        });
        let threads = self.threads.take().map(|threads| match threads {
            ThreadKeys::Word(ThreadWord::Auto) => Threads::Shared,
            ThreadKeys::Word(ThreadWord::Off) => Threads::Unlimited,
            ThreadKeys::Number(number) => Threads::Each(number.get()),
        });
        set(set(pool, gpus, Pool::gpus), threads, Pool::threads)
    }
}
