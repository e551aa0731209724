//! Finds the interpreter: the one in the settings, that of the active virtual environment, or the first in `PATH`.
//!
//! The program in `PATH` may be a script of a version manager, which makes every start slower than Python alone. The
//! script is asked once for the real interpreter.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::helper_process::HelperOutcome;
use super::{EnvironmentError, HelperRunner, in_path, is_program};
use snakepit_custody::Command;

/// The time limit for an interpreter to report its version.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// How to find an interpreter.
///
/// ```
/// use snakepit::environment::Python;
///
/// assert_eq!(Python::from("3.12"), Python::Version("3.12".into()));
/// assert_eq!(Python::from("python3.12"), Python::Name("python3.12".into()));
/// assert_eq!(Python::from(".venv/bin/python"), Python::Path(".venv/bin/python".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Python {
    /// A version: `3`, `3.12` or `3.12.4`.
    Version(String),
    /// A name in `PATH`.
    Name(String),
    /// An interpreter, or the directory of a virtual environment.
    Path(PathBuf),
}

impl Python {
    /// Parses a text. Digits and dots are a version, a text with a slash is a path relative to `dir`, and any other
    /// text is a name, unless `dir` contains a directory of that name.
    pub fn read(text: &str, dir: &Path) -> Self {
        let path = Path::new(text);
        if is_version(text) {
            Self::Version(text.to_owned())
        } else if path.components().count() > 1 || text.ends_with('/') || dir.join(path).is_dir() {
            Self::Path(dir.join(path))
        } else {
            Self::Name(text.to_owned())
        }
    }

    /// Returns an interpreter by its path, or by its name in `PATH`.
    pub fn interpreter(python: PathBuf) -> Self {
        match python.to_str() {
            Some(name) if python.components().count() == 1 => Self::Name(name.to_owned()),
            _ => Self::Path(python),
        }
    }
}

impl From<&str> for Python {
    fn from(text: &str) -> Self {
        Self::read(text, Path::new(""))
    }
}

impl From<String> for Python {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&Path> for Python {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::from(text),
            None => Self::Path(path.to_owned()),
        }
    }
}

impl From<PathBuf> for Python {
    fn from(path: PathBuf) -> Self {
        Self::from(path.as_path())
    }
}

pub(super) fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() <= 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What an interpreter reports about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// The program to start.
    pub(crate) executable: PathBuf,
    /// The same interpreter outside of virtual environments.
    pub(crate) base: PathBuf,
    pub(crate) implementation: String,
    pub(crate) version: String,
    pub(crate) abi: String,
    pub(crate) platform: String,
    /// The version of its `pip`, if it has one.
    pub(crate) pip: Option<String>,
}

/// Prints the fields of [`Identity`], one per line.
const IDENTIFY: &str = "
import sys, sysconfig
try:
    from pip import __version__ as pip
except Exception:
    pip = ''
base = getattr(sys, '_base_executable', None) or sys.executable
version = '.'.join(map(str, sys.version_info[:3]))
abi = sysconfig.get_config_var('SOABI') or sys.implementation.cache_tag or ''
for fact in (sys.executable, base, sys.implementation.name, version, abi, sysconfig.get_platform(), pip):
    print('snakepit:' + fact)
";

/// Asks an interpreter for its identity.
pub(crate) async fn identify(python: &Path, helpers: &HelperRunner) -> Result<Identity, EnvironmentError> {
    let step = format!("asking {} for its version", python.display());
    let command = isolated(Command::new(python)).args(["-I", "-c", IDENTIFY]);
    let HelperOutcome { status, lines } = helpers.run(&step, command, IDENTIFY_TIMEOUT, |_| {}).await?;
    let facts: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("snakepit:")).collect();
    match facts[..] {
        [executable, base, implementation, version, abi, platform, ref pip @ ..]
            if Path::new(executable).is_file() =>
        {
            let pip = pip.first().filter(|version| !version.is_empty());
            Ok(Identity {
                executable: executable.into(),
                base: base.into(),
                implementation: implementation.into(),
                version: version.into(),
                abi: abi.into(),
                platform: platform.into(),
                pip: pip.map(|version| (*version).to_owned()),
            })
        }
        _ => Err(EnvironmentError::NotPython { python: python.to_owned(), status, output: lines }),
    }
}

/// Removes the variables of the host that would affect another interpreter.
pub(super) fn isolated(command: Command) -> Command {
    command.env_remove("PYTHONHOME").env_remove("PYTHONPATH").env_remove("__PYVENV_LAUNCHER__")
}

/// Finds the interpreter. Starts a process only for a version, or if the interpreter is a script.
pub async fn find(asked: Option<&Python>, helpers: &HelperRunner) -> Result<PathBuf, EnvironmentError> {
    let python = match asked {
        Some(Python::Version(version)) => return find_version(version, helpers).await,
        Some(Python::Name(name)) => {
            in_path(Path::new(name)).ok_or_else(|| EnvironmentError::NotInPath(name.clone()))?
        }
        Some(Python::Path(path)) => at(&helpers.dir().join(path))?,
        None => match std::env::var_os("VIRTUAL_ENV") {
            Some(environment) => at_active(PathBuf::from(environment))?,
            None => {
                in_path(Path::new("python3")).ok_or_else(|| EnvironmentError::NotInPath("python3".into()))?
            }
        },
    };
    if is_script(&python) { Ok(identify(&python, helpers).await?.executable) } else { Ok(python) }
}

fn at(path: &Path) -> Result<PathBuf, EnvironmentError> {
    if !path.is_dir() {
        return at_interpreter(path.to_owned());
    }
    let python = path.join("bin/python");
    if python.exists() { Ok(python) } else { Err(EnvironmentError::NoEnvironment(path.to_owned())) }
}

fn at_active(environment: PathBuf) -> Result<PathBuf, EnvironmentError> {
    let python = environment.join("bin/python");
    if python.exists() { Ok(python) } else { Err(EnvironmentError::NotActive(environment)) }
}

fn at_interpreter(path: PathBuf) -> Result<PathBuf, EnvironmentError> {
    if path.exists() { Ok(path) } else { Err(EnvironmentError::NoInterpreter(path)) }
}

/// Reports whether a program is a script. A Python that is a script belongs to a version manager.
pub(crate) fn is_script(file: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"#!"
}

/// Finds the first interpreter of a version: by its name in `PATH`, then another Python in `PATH`, then one of
/// `pyenv`, then one of `uv`. A script of `pyenv` in `PATH` may fail, because it works only for activated versions.
async fn find_version(version: &str, helpers: &HelperRunner) -> Result<PathBuf, EnvironmentError> {
    let mut candidates: Vec<PathBuf> =
        names(version).iter().filter_map(|name| in_path(Path::new(name))).collect();
    candidates.extend(of_pyenv(version));
    for candidate in candidates {
        match identify(&candidate, helpers).await {
            Ok(identity) if fits(version, &identity.version) => return Ok(identity.executable),
            Ok(_) | Err(EnvironmentError::NotPython { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(uv) = in_path(Path::new("uv")) {
        let command = Command::new(uv).args(["python", "find", "--no-project", version]);
        let done = helpers.run("asking uv for a Python", command, IDENTIFY_TIMEOUT, |_| {}).await?;
        let found = done.lines.last().map(PathBuf::from).filter(|path| done.is_success() && is_program(path));
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let looked = format!("PATH, {}, and the Pythons of uv, if uv is installed", pyenv_versions().display());
    Err(EnvironmentError::NoVersion { version: version.to_owned(), looked })
}

/// Returns the names that an interpreter of a version may have.
fn names(version: &str) -> Vec<String> {
    let parts: Vec<&str> = version.split('.').collect();
    let mut names: Vec<String> =
        (1..=parts.len().min(2)).rev().map(|length| format!("python{}", parts[..length].join("."))).collect();
    names.extend(["python3".to_owned(), "python".to_owned()]);
    names.dedup();
    names
}

/// Reports whether a version is the requested one, or a more specific one.
fn fits(asked: &str, version: &str) -> bool {
    version.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn pyenv_versions() -> PathBuf {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    root.unwrap_or_else(|| "/.pyenv".into()).join("versions")
}

/// Returns the interpreters of `pyenv` with a version, the newest first.
fn of_pyenv(version: &str) -> Vec<PathBuf> {
    let Ok(versions) = std::fs::read_dir(pyenv_versions()) else { return Vec::new() };
    let mut found: Vec<(Vec<u32>, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_version(name))?;
            let number = name.split('.').map(|part| part.parse().unwrap_or(0)).collect();
            fits(version, &name).then(|| (number, entry.path().join("bin/python")))
        })
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found.into_iter().map(|(_, python)| python).filter(|python| python.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_a_version_a_program_a_path_or_an_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join(".venv")).expect("a directory");
        let read = |text| Python::read(text, dir.path());
        for version in ["3", "3.12", "3.12.4"] {
            assert_eq!(read(version), Python::Version(version.into()));
        }
        assert_eq!(read("python3.12"), Python::Name("python3.12".into()));
        assert_eq!(read("3.12.4.5"), Python::Name("3.12.4.5".into()));
        assert_eq!(read(".venv"), Python::Path(dir.path().join(".venv")));
        assert_eq!(read("venv/bin/python"), Python::Path(dir.path().join("venv/bin/python")));
        assert_eq!(read("/usr/bin/python3"), Python::Path("/usr/bin/python3".into()));
    }

    #[test]
    fn a_version_matches_itself_and_more_exact_versions() {
        assert!(fits("3", "3.12.4") && fits("3.12", "3.12.4") && fits("3.12.4", "3.12.4"));
        assert!(!fits("3.1", "3.12.4") && !fits("3.12.4", "3.12") && !fits("3.13", "3.12.4"));
        assert_eq!(names("3.12.4"), ["python3.12", "python3", "python"]);
        assert_eq!(names("3"), ["python3", "python"]);
    }
}
