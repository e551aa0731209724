//! Errors, and what to do about them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::python::is_version;
use super::requires_python;
use snakepit_custody::{DirError, ExitStatus, SpawnError};

/// The number of a tool's last lines that an error shows.
const SHOWN_LINES: usize = 15;

/// Returns what to do about an interpreter that is not in `PATH`.
fn not_in_path(name: &str) -> String {
    if is_version(name) {
        format!("if it is a version, write python = \"{name}\" instead of `interpreter`")
    } else {
        "install Python 3.9 or later, or name an interpreter".to_owned()
    }
}

/// Returns a warning if the version is too old for the SDK.
fn too_old(version: &str) -> &'static str {
    match requires_python::allows(">=3.9", version) {
        // `3` means any version.
        Some(false) if version != "3" => "; workers with the SDK need 3.9 or later",
        _ => "",
    }
}

/// Returns how to set a Python that the project supports.
fn example(needs: &str) -> String {
    match requires_python::lowest(needs) {
        Some(version) => format!(", for example `python = \"{version}\"` in snakepit.toml"),
        None => ", by `python = …` in snakepit.toml".to_owned(),
    }
}

/// Why an environment could not be built. Nothing of a failed build is used.
///
/// ```no_run
/// use snakepit::custody::Run;
/// use snakepit::environment::{Environment, EnvironmentError};
///
/// # async fn example(run: &Run) -> Result<(), EnvironmentError> {
/// match Environment::new().python("3.13").requirements(["numpy>=2"]).build(run, "setup").await {
///     Ok(_) => println!("the environment is ready"),
///     Err(EnvironmentError::NoVersion { version, .. }) => eprintln!("install Python {version} first"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The interpreter does not exist at this path.
    #[error("the Python interpreter {0} does not exist: install it, or name another one with `python`")]
    NoInterpreter(PathBuf),
    /// The name of an interpreter is not in `PATH`.
    #[error("{0} is not in PATH: {advice}", advice = not_in_path(.0))]
    NotInPath(String),
    /// `VIRTUAL_ENV` names a directory without a Python.
    #[error(
        "VIRTUAL_ENV is {0}, which has no bin/python: activate another environment, unset VIRTUAL_ENV, or name an \
         interpreter"
    )]
    NotActive(PathBuf),
    /// No interpreter of this version was found.
    #[error(
        "there is no Python {version} here (looked in {looked}): run `uv python install {version}` or \
         `pyenv install {version}`, or name an interpreter by its path{}", too_old(.version)
    )]
    NoVersion {
        /// The version.
        version: String,
        /// The places that were searched.
        looked: String,
    },
    /// The directory is not a virtual environment.
    #[error(
        "{0} has no bin/python, so it is not a virtual environment: run `python3 -m venv {0}`, or name another one"
    )]
    NoEnvironment(PathBuf),
    /// Packages cannot be installed into a virtual environment that the settings name.
    #[error(
        "packages are never installed into an existing virtual environment such as {0}: list its packages, \
         and name an interpreter or a version instead of the environment"
    )]
    NotOurs(PathBuf),
    /// The program is not a working Python interpreter.
    #[error("{python} is not a working Python: it did not report its version ({status}); name another one with `python`{}", shown(.output))]
    NotPython {
        /// The interpreter.
        python: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        output: Vec<String>,
    },
    /// A requirements file cannot be read.
    #[error("cannot read {path}, which names what to install: check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The project has an unknown form.
    #[error(
        "{0} is not a project of a known form: name a pyproject.toml, a uv.lock, a pylock.toml, a requirements file, \
         or a directory that has one of them"
    )]
    UnknownProject(PathBuf),
    /// The project does not support this Python.
    #[error(
        "{path} needs Python {needs}, but {python} is {version}: name another Python{}", example(.needs)
    )]
    WrongPython {
        /// The project's file.
        path: PathBuf,
        /// The versions that it supports.
        needs: String,
        /// The interpreter.
        python: PathBuf,
        /// Its version.
        version: String,
    },
    /// Only `uv` can read the lock file.
    #[error(
        "only uv can install {path}, and uv {why}, or run `{instead}` beside it and name requirements.txt"
    )]
    NeedsUv {
        /// The file.
        path: PathBuf,
        /// Why `uv` is not used, and what to do about that.
        why: &'static str,
        /// The command that turns it into a file that `pip` can install.
        instead: &'static str,
    },
    /// The environment must be built by `uv`, which is not installed.
    #[error(
        "this environment must be built by uv, which is not in PATH: install uv, or let pip build it (`tool = \"pip\"`)"
    )]
    NoUv,
    /// A tool failed.
    #[error("cannot build the Python environment: {step} failed with {status}{}{}", hinted(.hint.as_deref()), shown(.output))]
    Failed {
        /// The step that failed.
        step: String,
        /// The exit status of the tool.
        status: ExitStatus,
        /// What to do, if the output reveals it.
        hint: Option<String>,
        /// The last lines of its output.
        output: Vec<String>,
    },
    /// The build took too long.
    #[error("the Python environment was not built within {after:?} (last step: {step}): set a longer timeout{}", shown(.output))]
    Timeout {
        /// The step that was running.
        step: String,
        /// The timeout of the build.
        after: Duration,
        /// The last lines of the tool's output.
        output: Vec<String>,
    },
    /// The requirements changed during the build.
    #[error("the files that name what to install changed during the build: try again")]
    Changed,
    /// There is no directory for the cache.
    #[error("there is no directory for Python environments: set HOME, XDG_CACHE_HOME or SNAKEPIT_CACHE_DIR")]
    NoPlace,
    /// Other users could change the cache.
    #[error("Python environments cannot be kept in {dir}")]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it, or with a directory above it.
        source: DirError,
    },
    /// A file or directory of the cache cannot be used.
    #[error("cannot {what} {path}{}", advice(.source))]
    Place {
        /// The attempted operation, as a verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A tool could not be started.
    #[error("cannot start {step}")]
    Spawn {
        /// The step of the tool.
        step: String,
        /// The cause.
        source: SpawnError,
    },
    /// The runtime of the host is shutting down.
    #[error("the runtime of the host is shutting down: keep it until the environment is built")]
    Runtime,
}

/// Converts the error of an operation on a path to an [`EnvironmentError`]: `map_err(cannot("read", path))`.
pub(super) fn cannot(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> EnvironmentError {
    let path = path.into();
    move |source| EnvironmentError::Place { what, path, source }
}

/// Returns what to do about a full disk or a missing permission.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": run `snakepit env prune`, or choose another directory with `cache_dir` or SNAKEPIT_CACHE_DIR"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            ": choose another directory with `cache_dir` or SNAKEPIT_CACHE_DIR, or build the environment where the cache is writable"
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

/// Words in the output of a tool, and what to do if one of them occurs. The first match counts: without a network,
/// `pip` also finds no package.
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
        "the package index cannot be reached: check the network and the proxy, or install from files with \
         `--no-index` and `--find-links DIR`",
    ),
    (&["no space left on device"], "the disk is full: run `snakepit env prune`"),
    (
        &["do not match the hashes", "hash mismatch"],
        "a package differs from the locked one: update the lock file, if you trust the new package",
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
        "a package does not support this version of Python: choose another one with `python`",
    ),
    (
        &[
            "no matching distribution found",
            "could not find a version that satisfies",
            "no solution found",
            "was not found in the",
            "invalid requirement",
        ],
        "a package, or the requested version of it, does not exist in the index: check its spelling, and which index is \
         used",
    ),
];

/// Returns what to do about a failure, if the output reveals it.
pub(super) fn hint(output: &[String]) -> Option<String> {
    let text = output.join("\n").to_lowercase();
    let meaning = MEANINGS.iter().find(|(words, _)| words.iter().any(|word| text.contains(word)))?;
    Some(meaning.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_tools_leads_to_a_hint() {
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
