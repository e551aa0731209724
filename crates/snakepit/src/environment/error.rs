//! Why there is no environment, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::python::is_version;
use super::requires;
use crate::custody::{DirError, ExitStatus, SpawnError};

/// How many of a tool's last lines an error shows.
const SHOWN_LINES: usize = 15;

/// What to do about an interpreter's name that nobody has.
fn not_in_path(name: &str) -> String {
    if is_version(name) {
        format!("if it is a version, write python = \"{name}\" in the place of `interpreter`")
    } else {
        "install Python 3.9 or later, or name an interpreter".to_owned()
    }
}

/// A warning for those who would install it in vain.
fn too_old(version: &str) -> &'static str {
    match requires::allows(">=3.9", version) {
        // `3` is any of them.
        Some(false) if version != "3" => "; workers with the SDK need 3.9 or later",
        _ => "",
    }
}

/// How to name a Python that a project wants, if it says at least which one.
fn example(needs: &str) -> String {
    match requires::lowest(needs) {
        Some(version) => format!(", for example `python = \"{version}\"` in snakepit.toml"),
        None => ", by `python = …` in snakepit.toml".to_owned(),
    }
}

/// Why there is no environment. Nothing of the attempt is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// An interpreter by its path.
    #[error("the Python interpreter {0} does not exist")]
    NoInterpreter(PathBuf),
    /// An interpreter by its name.
    #[error("{0} is not in PATH: {advice}", advice = not_in_path(.0))]
    NotInPath(String),
    /// The environment that the host runs in.
    #[error(
        "VIRTUAL_ENV is {0}, and there is no bin/python in it: activate another environment, unset VIRTUAL_ENV, or name an \
         interpreter"
    )]
    NotActive(PathBuf),
    /// An interpreter by its version.
    #[error(
        "there is no Python {version} here (looked in {looked}): run `uv python install {version}` or \
         `pyenv install {version}`, or name an interpreter by its path{}", too_old(.version)
    )]
    NoVersion {
        /// The version.
        version: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A directory that is no environment.
    #[error(
        "{0} has no bin/python, so it is no virtual environment: run `python3 -m venv {0}`, or name another one"
    )]
    NoEnvironment(PathBuf),
    /// Packages for an environment that is not ours to change.
    #[error(
        "{0} is a virtual environment, and what is installed for workers gets one of its own: name its packages, \
         and the interpreter or its version in the place of the environment"
    )]
    NotOurs(PathBuf),
    /// Something that does not answer like a Python.
    #[error("{python} does not answer like a Python ({status}){}", shown(.output))]
    NotPython {
        /// The interpreter.
        python: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        output: Vec<String>,
    },
    /// A file that says what is installed.
    #[error("cannot read {path}, which says what is to be installed")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A project in a form that is not known.
    #[error(
        "{0} is no project that is known here: name a pyproject.toml, a uv.lock, a pylock.toml, a requirements file, \
         or a directory that has one of them"
    )]
    UnknownProject(PathBuf),
    /// The project is for other Pythons.
    #[error(
        "{path} needs Python {needs}, and {python} is {version}: name another one{}", example(.needs)
    )]
    WrongPython {
        /// The project's file.
        path: PathBuf,
        /// What it says.
        needs: String,
        /// The interpreter.
        python: PathBuf,
        /// Its version.
        version: String,
    },
    /// A lock file that only `uv` reads.
    #[error(
        "{path} can only be installed by uv, which {why}, or run `{instead}` where it is and name requirements.txt"
    )]
    NeedsUv {
        /// The file.
        path: PathBuf,
        /// Why it is not, and what to do about that.
        why: &'static str,
        /// What makes a file of it that `pip` can install.
        instead: &'static str,
    },
    /// `uv` was asked for.
    #[error("uv is not in PATH, and this environment is to be made by it: install uv, or let `pip` make it")]
    NoUv,
    /// A tool failed.
    #[error("cannot make a Python environment: {step} failed with {status}{}{}", hinted(.hint.as_deref()), shown(.output))]
    Failed {
        /// What was being done.
        step: String,
        /// How the tool ended.
        status: ExitStatus,
        /// What to do, if that can be told from what it said.
        hint: Option<String>,
        /// What it said last.
        output: Vec<String>,
    },
    /// It took too long.
    #[error("a Python environment was not made within {after:?}, while {step}{}", shown(.output))]
    Timeout {
        /// What was being done.
        step: String,
        /// The time that it had.
        after: Duration,
        /// What the tool said last.
        output: Vec<String>,
    },
    /// What is asked for is another thing now.
    #[error("what is to be installed was changed while it was installed: try again")]
    Changed,
    /// No place is known.
    #[error("there is no place for Python environments: set HOME, XDG_CACHE_HOME or SNAKEPIT_CACHE_DIR")]
    NoPlace,
    /// The place may hold what others have put there.
    #[error("Python environments cannot be kept in {dir}")]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it, or with a directory above it.
        source: DirError,
    },
    /// The place cannot be used.
    #[error("cannot {what} {path}{}", advice(.source))]
    Place {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A tool could not be started.
    #[error("cannot start {step}")]
    Spawn {
        /// What was to be done.
        step: String,
        /// Why not.
        source: SpawnError,
    },
    /// The host's runtime ends.
    #[error("the runtime is shutting down")]
    Runtime,
}

pub(super) fn place(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> EnvironmentError {
    let path = path.into();
    move |source| EnvironmentError::Place { what, path, source }
}

/// What to do about a place that refuses.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": run `snakepit env prune`, or choose another place with `cache_dir` or SNAKEPIT_CACHE_DIR"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            ": choose another place with `cache_dir` or SNAKEPIT_CACHE_DIR, or make it where that can be written to"
        }
        _ => "",
    }
}

fn shown(output: &[String]) -> String {
    let last = &output[output.len().saturating_sub(SHOWN_LINES)..];
    if last.is_empty() { String::new() } else { format!("; its last lines:\n  {}", last.join("\n  ")) }
}

fn hinted(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!(": {hint}"))
}

/// What a tool's words mean, and what to do about it. The first that fits counts: without a network, `pip` finds no
/// package either.
const MEANINGS: [(&[&str], &str); 7] = [
    (
        &[
            "failed to establish a new connection",
            "temporary failure in name resolution",
            "name or service not known",
            "network is unreachable",
            "connecttimeouterror",
            "readtimeouterror",
            "error sending request",
            "dns error",
            "failed to connect",
            "network connectivity is disabled",
        ],
        "the package index cannot be reached: look at the network and its proxy, or install from files with \
         `--no-index` and `--find-links DIR`",
    ),
    (&["no space left on device"], "the disk is full: run `snakepit env prune`"),
    (
        &["do not match the hashes", "hash mismatch"],
        "a package is not the one that was locked: make the lock file again, if you trust the new one",
    ),
    (
        &[
            "ensurepip is not",
            "no module named ensurepip",
            "no module named venv",
            "no module named 'ensurepip'",
        ],
        "this Python comes without venv: install it (on Debian `apt install python3-venv`), or install uv",
    ),
    (&["no module named pip"], "this Python comes without pip: run `python3 -m ensurepip`, or install uv"),
    (
        &["requires a different python", "does not satisfy python", "requires-python"],
        "a package is not for this version of Python: choose another one with `python`",
    ),
    (
        &[
            "no matching distribution found",
            "could not find a version that satisfies",
            "no solution found",
            "was not found in the",
            "invalid requirement",
        ],
        "a package, or the version that is asked for, does not exist where it was looked for: see how it is spelled, and \
         which index is asked",
    ),
];

/// What to do about a failure, if that can be told from what was said.
pub(super) fn hint(output: &[String]) -> Option<String> {
    let said = output.join("\n").to_lowercase();
    let meaning = MEANINGS.iter().find(|(words, _)| words.iter().any(|word| said.contains(word)))?;
    Some(meaning.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_say_is_understood() {
        let cases = [
            (
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(': Failed to \
                 establish a new connection: [Errno -2] Name or service not known')'\nERROR: No matching distribution \
                 found for numpy",
                "cannot be reached",
            ),
            ("ERROR: No matching distribution found for nunpy>=2", "does not exist"),
            ("  x No solution found when resolving dependencies:", "does not exist"),
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "locked"),
            (
                "The virtual environment was not created successfully because ensurepip is not\navailable.",
                "venv",
            ),
            ("ERROR: Package 'a' requires a different Python: 3.11.7 not in '>=3.12'", "version of Python"),
            ("OSError: [Errno 28] No space left on device", "snakepit env prune"),
        ];
        for (said, meant) in cases {
            let lines: Vec<String> = said.lines().map(str::to_owned).collect();
            let hint = hint(&lines).unwrap_or_else(|| panic!("{said} says nothing"));
            assert!(hint.contains(meant), "{said}: {hint}");
        }
        assert_eq!(hint(&["error: command 'gcc' failed".into()]), None);
    }
}
