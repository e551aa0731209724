//! A program that becomes a worker: its command line, environment and working directory.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::StartError;
use crate::custody::Command;
use crate::environment::Environment;

/// A program in any language, with its arguments. A list of words converts to a program: `["node", "worker.mjs"]`.
///
/// ```
/// use snakepit::adapter::Program;
///
/// let program = Program::new(["node", "worker.mjs"]).env("MODE", "fast").current_dir("/srv/worker");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Program {
    pub(super) argv: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) dir: Option<PathBuf>,
    pub(super) environment: Option<Box<Environment>>,
}

impl Program {
    /// Creates a program from its path, or its name in `PATH`, and its arguments.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            dir: None,
            environment: None,
        }
    }

    /// Sets an environment variable of the program.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the working directory of the program.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the Python environment, which is made once and kept. The program starts as in a shell after `activate`:
    /// installed programs are found by name, and `python` is the interpreter that the environment asks for.
    ///
    /// ```
    /// use snakepit::adapter::Program;
    /// use snakepit::environment::Environment;
    ///
    /// let server = Program::new(["python", "server.py"]).environment(Environment::new().requirements(["fastapi", "uvicorn"]));
    /// ```
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(Box::new(environment));
        self
    }

    /// Returns the default name of a pool of this program: the program without its folder and extension.
    pub(super) fn name(&self) -> String {
        let stem = self.argv.first().map(Path::new).and_then(Path::file_stem);
        stem.map_or_else(|| "command".into(), |stem| OsStr::to_string_lossy(stem).into_owned())
    }

    /// Returns the program's arguments and the values of its variables.
    #[cfg(feature = "http")]
    pub(super) fn texts(&self) -> impl Iterator<Item = &OsString> {
        self.argv.iter().chain(self.env.iter().map(|(_, value)| value))
    }

    /// Returns the same program with its arguments and the values of its variables changed.
    #[cfg(feature = "http")]
    pub(super) fn changed(&self, change: impl Fn(&OsStr) -> OsString) -> Self {
        Self {
            argv: self.argv.iter().map(|word| change(word)).collect(),
            env: self.env.iter().map(|(key, value)| (key.clone(), change(value))).collect(),
            ..self.clone()
        }
    }

    /// Returns the command to start, for a program that needs no environment to be made first.
    pub fn command(&self) -> Result<Command, StartError> {
        let (program, args) = self.words()?;
        Ok(placed(Command::new(program).args(args), &self.env, self.dir.as_deref()))
    }

    /// Returns the program and its arguments.
    pub(super) fn words(&self) -> Result<(&OsString, &[OsString]), StartError> {
        self.argv.split_first().ok_or(StartError::NoCommand)
    }
}

impl<I: IntoIterator<Item = S>, S: Into<OsString>> From<I> for Program {
    fn from(argv: I) -> Self {
        Self::new(argv)
    }
}

/// Adds environment variables and a working directory to a command.
pub(super) fn placed(command: Command, env: &[(OsString, OsString)], dir: Option<&Path>) -> Command {
    let command = env.iter().fold(command, |command, (key, value)| command.env(key, value));
    match dir {
        Some(dir) => command.current_dir(dir),
        None => command,
    }
}
