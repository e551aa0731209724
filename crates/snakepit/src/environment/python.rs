//! Which Python: the one that was asked for, the virtual environment's, or the first in `PATH`.
//!
//! What stands in `PATH` may be a script of a version manager, which costs more at every start than Python itself; it is
//! asked once where the real one is.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::errand::Done;
use super::{EnvironmentError, Errands, in_path, is_program};
use crate::custody::Command;

/// How long an interpreter may take to tell who it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// An interpreter, or how to find one.
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
    /// What a text means: digits and dots are a version, what has a slash is a path from `dir`, all else a name, unless
    /// `dir` has a virtual environment of that name.
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

    /// An interpreter by its path, or by its name in `PATH`.
    pub(crate) fn interpreter(python: PathBuf) -> Self {
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

/// Who an interpreter is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// What to start.
    pub(crate) executable: PathBuf,
    /// The same, outside of every virtual environment.
    pub(crate) base: PathBuf,
    pub(crate) implementation: String,
    pub(crate) version: String,
    pub(crate) abi: String,
    pub(crate) platform: String,
    /// The version of its `pip`, if it has one.
    pub(crate) pip: Option<String>,
}

const WHO: &str = "
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

/// Asks an interpreter who it is.
pub(crate) async fn identify(python: &Path, errands: &Errands) -> Result<Identity, EnvironmentError> {
    let step = format!("asking {} for its version", python.display());
    let command = isolated(Command::new(python)).args(["-I", "-c", WHO]);
    let Done { status, lines } = errands.run(&step, command, PATIENCE, |_| {}).await?;
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

/// Without what the host's environment would make of an interpreter that is another one.
pub(super) fn isolated(command: Command) -> Command {
    command.env_remove("PYTHONHOME").env_remove("PYTHONPATH").env_remove("__PYVENV_LAUNCHER__")
}

/// Finds the interpreter. Nothing is started for it, unless a version is asked for or a script stands in the way.
pub(crate) async fn find(asked: Option<&Python>, errands: &Errands) -> Result<PathBuf, EnvironmentError> {
    let python = match asked {
        Some(Python::Version(version)) => return find_version(version, errands).await,
        Some(Python::Name(name)) => {
            in_path(Path::new(name)).ok_or_else(|| EnvironmentError::NotInPath(name.clone()))?
        }
        Some(Python::Path(path)) => at(&errands.dir().join(path))?,
        None => match std::env::var_os("VIRTUAL_ENV") {
            Some(environment) => at_active(PathBuf::from(environment))?,
            None => {
                in_path(Path::new("python3")).ok_or_else(|| EnvironmentError::NotInPath("python3".into()))?
            }
        },
    };
    if is_script(&python) { Ok(identify(&python, errands).await?.executable) } else { Ok(python) }
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

/// Whether a program is a script: of a version manager, if it should be a Python.
pub(crate) fn is_script(file: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"#!"
}

/// The first interpreter of a version: by its name in `PATH`, else another Python in `PATH`, else one of `pyenv`, else one
/// that `uv` has. A script of `pyenv` in `PATH` only works for versions that are switched on, so it may fail.
async fn find_version(version: &str, errands: &Errands) -> Result<PathBuf, EnvironmentError> {
    let mut candidates: Vec<PathBuf> =
        names(version).iter().filter_map(|name| in_path(Path::new(name))).collect();
    candidates.extend(of_pyenv(version));
    for candidate in candidates {
        match identify(&candidate, errands).await {
            Ok(identity) if fits(version, &identity.version) => return Ok(identity.executable),
            Ok(_) | Err(EnvironmentError::NotPython { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(uv) = in_path(Path::new("uv")) {
        let command = Command::new(uv).args(["python", "find", "--no-project", version]);
        let done = errands.run("asking uv for a Python", command, PATIENCE, |_| {}).await?;
        let found = done.lines.last().map(PathBuf::from).filter(|path| done.is_fine() && is_program(path));
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let looked = format!("PATH, {}, and what uv has, if it is installed", pyenv_versions().display());
    Err(EnvironmentError::NoVersion { version: version.to_owned(), looked })
}

/// What an interpreter of a version may be called.
fn names(version: &str) -> Vec<String> {
    let parts: Vec<&str> = version.split('.').collect();
    let mut names: Vec<String> =
        (1..=parts.len().min(2)).rev().map(|length| format!("python{}", parts[..length].join("."))).collect();
    names.extend(["python3".to_owned(), "python".to_owned()]);
    names.dedup();
    names
}

/// Whether a version is the one that was asked for, or one of these.
fn fits(asked: &str, version: &str) -> bool {
    version.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn pyenv_versions() -> PathBuf {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    root.unwrap_or_else(|| "/.pyenv".into()).join("versions")
}

/// The newest first.
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
    fn a_text_is_a_version_a_name_a_path_or_an_environment() {
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
    fn a_version_is_met_by_itself_and_by_what_is_more_exact() {
        assert!(fits("3", "3.12.4") && fits("3.12", "3.12.4") && fits("3.12.4", "3.12.4"));
        assert!(!fits("3.1", "3.12.4") && !fits("3.12.4", "3.12") && !fits("3.13", "3.12.4"));
        assert_eq!(names("3.12.4"), ["python3.12", "python3", "python"]);
        assert_eq!(names("3"), ["python3", "python"]);
    }
}
