//! The steps of a build, by `uv` or by `venv` and `pip`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use super::error::{cannot, hint};
use super::python::{Identity, isolated};
use super::recipe::{PackageSource, Recipe};
use super::{Environment, EnvironmentError, HelperRunner, Installer, in_path};
use snakepit_custody::{Command, catch_file_size_limit};
use snakepit_telemetry::{Event, Level, emit_with};

/// The number of steps: create the environment, read the requirements, install the packages, check the result.
pub(super) const STEPS: u32 = 4;

/// The first version of `pip` that can install into an environment that it does not belong to.
const PIP_WITH_PYTHON_OPTION: (u32, u32) = (22, 3);

/// Lists the dependencies of a `pyproject.toml`. `pip` alone would install the project, too.
const DEPENDENCIES: &str = "
import sys
try:
    import tomllib
except ImportError:
    try:
        import tomli as tomllib
    except ImportError:
        from pip._vendor import tomli as tomllib
with open(sys.argv[1], 'rb') as file:
    project = tomllib.load(file).get('project')
if project is None:
    sys.exit(sys.argv[1] + ' has no table [project]')
if 'dependencies' in project.get('dynamic', ()):
    sys.exit(sys.argv[1] + ' computes its dependencies, which only uv can do without installing it')
with open(sys.argv[2], 'w', encoding='utf-8') as file:
    file.writelines(line + '\\n' for line in project.get('dependencies', ()))
";

/// A running build.
pub(super) struct BuildSteps<'a> {
    pub(super) environment: &'a Environment,
    pub(super) identity: &'a Identity,
    pub(super) recipe: &'a Recipe,
    pub(super) helpers: &'a HelperRunner,
    pub(super) venv: &'a Path,
    pub(super) key: &'a str,
    pub(super) began: Instant,
}

/// Emits the progress of a build.
pub(super) fn emit_progress(pool: &Arc<str>, key: &str, step: u32, text: &str) {
    emit_with(Level::Debug, || Event::EnvironmentProgress {
        pool: Arc::clone(pool),
        key: key.into(),
        step,
        steps: STEPS,
        text: text.into(),
    });
}

impl BuildSteps<'_> {
    /// Builds the environment. Returns the name and version of the tool.
    pub(super) async fn run(&self) -> Result<String, EnvironmentError> {
        let uv = match self.environment.installer {
            Installer::Auto => in_path(Path::new("uv")),
            Installer::Uv => Some(in_path(Path::new("uv")).ok_or(EnvironmentError::NoUv)?),
            Installer::Pip => None,
        };
        // Fails before anything is created.
        let needs_uv = match &self.recipe.source {
            PackageSource::UvLock(project) => {
                Some((project.join("uv.lock"), "uv export --no-emit-project --no-dev -o requirements.txt"))
            }
            PackageSource::Pylock(path) => {
                Some((path.clone(), "uv pip compile pyproject.toml -o requirements.txt"))
            }
            PackageSource::List(..) | PackageSource::File(_) | PackageSource::Pyproject(_) => None,
        };
        if let (None, Some((path, instead))) = (&uv, needs_uv) {
            let why = match self.environment.installer {
                Installer::Pip => "is disabled here: let uv build this environment (`tool = \"auto\"`)",
                Installer::Auto | Installer::Uv => "is not in PATH: install uv",
            };
            return Err(EnvironmentError::NeedsUv { path, why, instead });
        }
        let tool = if uv.is_some() { "uv" } else { "pip" };
        emit_with(Level::Info, || Event::EnvironmentBuilding {
            pool: Arc::clone(&self.helpers.owner),
            key: self.key.into(),
            python: self.identity.version.as_str().into(),
            tool,
        });
        let tool = match uv {
            Some(uv) => self.by_uv(&uv).await?,
            None => self.by_pip().await?,
        };
        self.check().await?;
        Ok(tool)
    }

    async fn by_uv(&self, uv: &Path) -> Result<String, EnvironmentError> {
        let uv = || isolated(Command::new(uv)).env("UV_NO_PROGRESS", "1");
        let version = self.step(1, "uv --version", uv().arg("--version")).await?;
        let venv = uv().args(["venv", "--no-project", "--python"]).arg(&self.identity.base).arg(self.venv);
        self.step(1, "uv venv", venv).await?;
        let source = match &self.recipe.source {
            PackageSource::UvLock(project) => {
                let list = self.list_path();
                let export = uv()
                    .args(["export", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--quiet"])
                    .args(["--format", "requirements-txt", "--output-file"])
                    .arg(&list)
                    .arg("--project")
                    .arg(project);
                self.step(2, "uv export", export).await?;
                let text = std::fs::read_to_string(&list).map_err(cannot("read", &list))?;
                self.write_list(&with_absolute_paths(&text, project))?
            }
            PackageSource::Pyproject(path) | PackageSource::Pylock(path) | PackageSource::File(path) => {
                path.clone()
            }
            PackageSource::List(text, _) => self.write_list(text)?,
        };
        let install = uv().args(["pip", "install", "--python"]).arg(self.python()).arg("-r").arg(source);
        let install = self.with_files(install).args(&self.environment.args);
        self.step(3, "uv pip install", install).await?;
        Ok(version.last().map_or_else(|| "uv".into(), |line| first_words(line)))
    }

    async fn by_pip(&self) -> Result<String, EnvironmentError> {
        let base = || isolated(Command::new(&self.identity.base)).arg("-I");
        let from_outside =
            self.identity.pip.as_deref().is_some_and(|version| is_since(version, PIP_WITH_PYTHON_OPTION));
        // Installing `pip` takes longer than installing most packages.
        let venv = base().args(["-m", "venv", "--without-pip"]).arg(self.venv);
        self.step(1, "python -m venv", venv).await?;
        let python = || isolated(Command::new(self.python())).arg("-I");
        if !from_outside {
            // `venv` could do this, but hides the cause of a failure: Debian's always reports a missing package.
            let ensurepip = python().args(["-m", "ensurepip", "--upgrade", "--default-pip"]);
            self.step(1, "python -m ensurepip", ensurepip).await?;
        }
        let pip = || {
            if from_outside {
                base().args(["-m", "pip", "--python"]).arg(self.python())
            } else {
                python().args(["-m", "pip"])
            }
        };
        let source = match &self.recipe.source {
            PackageSource::Pyproject(path) => {
                let list = self.list_path();
                let python = if from_outside { base() } else { python() };
                let read = python.args(["-c", DEPENDENCIES]).arg(path).arg(&list);
                self.step(2, "reading pyproject.toml", read).await?;
                list
            }
            PackageSource::File(path) | PackageSource::Pylock(path) | PackageSource::UvLock(path) => {
                path.clone()
            }
            PackageSource::List(text, _) => self.write_list(text)?,
        };
        let install = pip()
            .args(["install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "-r"])
            .arg(source);
        let install = self.with_files(install).args(&self.environment.args);
        self.step(3, "pip install", install).await?;
        let version = self.step(3, "pip --version", pip().arg("--version")).await?;
        Ok(version.last().map_or_else(|| "pip".into(), |line| first_words(line)))
    }

    /// Checks that the result is a virtual environment.
    async fn check(&self) -> Result<(), EnvironmentError> {
        let check = "import sys; assert sys.prefix != sys.base_prefix, sys.prefix";
        let command = isolated(Command::new(self.python())).args(["-I", "-c", check]);
        self.step(4, "checking the environment", command).await.map(|_| ())
    }

    async fn step(&self, number: u32, name: &str, command: Command) -> Result<Vec<String>, EnvironmentError> {
        let owner = &self.helpers.owner;
        emit_progress(owner, self.key, number, name);
        let heard = |line: &str| emit_progress(owner, self.key, number, line);
        let left = self.environment.timeout.saturating_sub(self.began.elapsed());
        let done = self.helpers.run(name, command, left, heard).await.map_err(|error| match error {
            // The user set the timeout of the whole build, not the rest for this step.
            EnvironmentError::Timeout { step, output, .. } => {
                EnvironmentError::Timeout { step, after: self.environment.timeout, output }
            }
            error => error,
        })?;
        if done.is_success() {
            return Ok(done.lines);
        }
        let hint = hint(&done.lines);
        Err(EnvironmentError::Failed { step: name.to_owned(), status: done.status, hint, output: done.lines })
    }

    /// Adds the files that a list of requirements names.
    fn with_files(&self, install: Command) -> Command {
        let PackageSource::List(_, files) = &self.recipe.source else { return install };
        files.iter().fold(install, |install, (option, file)| install.arg(option).arg(file))
    }

    fn python(&self) -> PathBuf {
        self.venv.join("bin/python")
    }

    fn list_path(&self) -> PathBuf {
        self.venv.with_file_name("requirements.txt")
    }

    fn write_list(&self, text: &str) -> Result<PathBuf, EnvironmentError> {
        let path = self.list_path();
        catch_file_size_limit(|| std::fs::write(&path, text)).map_err(cannot("write", &path))?;
        Ok(path)
    }
}

/// Makes the local paths in the output of `uv export` absolute. They are relative to the project, and the tool runs
/// elsewhere.
fn with_absolute_paths(list: &str, project: &Path) -> String {
    let from = |line: &str| {
        let (option, rest) = line.strip_prefix("-e ").map_or(("", line), |rest| ("-e ", rest));
        let is_local = rest.starts_with("./") || rest.starts_with("../");
        if is_local { format!("{option}{}/{rest}\n", project.display()) } else { format!("{line}\n") }
    };
    list.lines().map(from).collect()
}

/// Shortens `pip 24.0 from /usr/lib/…` to `pip 24.0`.
fn first_words(line: &str) -> String {
    line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

fn is_since(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_versions_compare_by_number() {
        assert!(is_since("22.3", PIP_WITH_PYTHON_OPTION) && is_since("23.0.1", PIP_WITH_PYTHON_OPTION));
        assert!(
            !is_since("20.3.4", PIP_WITH_PYTHON_OPTION)
                && !is_since("9.0", PIP_WITH_PYTHON_OPTION)
                && !is_since("", PIP_WITH_PYTHON_OPTION)
        );
        assert_eq!(first_words("pip 24.0 from /usr/lib (python 3.11)"), "pip 24.0");
    }
}
