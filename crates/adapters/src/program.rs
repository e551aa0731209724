//! A program that becomes a worker: what is run, with which environment, and where.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::StartError;
use crate::custody::Command;
use crate::environment::Environment;

/// A program in any language, with its arguments. A list of words is one: `["node", "worker.mjs"]`.
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
    /// A program by its path, or by its name in `PATH`, and its arguments.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            dir: None,
            environment: None,
        }
    }

    /// A variable of its environment.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Its working directory.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// A Python and what is installed beside it, made once and kept. The program is started as in a shell after `activate`: what
    /// was installed is found by its name, and `python` is the one that was asked for.
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

    /// What a pool of it is called: the program, without its folder and its ending.
    pub(super) fn name(&self) -> String {
        let stem = self.argv.first().map(Path::new).and_then(Path::file_stem);
        stem.map_or_else(|| "command".into(), |stem| OsStr::to_string_lossy(stem).into_owned())
    }

    /// Its arguments, and the values of its variables.
    #[cfg(feature = "http")]
    pub(super) fn texts(&self) -> impl Iterator<Item = &OsString> {
        self.argv.iter().chain(self.env.iter().map(|(_, value)| value))
    }

    /// The same program, with each of its arguments and the values of its variables changed.
    #[cfg(feature = "http")]
    pub(super) fn changed(&self, change: impl Fn(&OsStr) -> OsString) -> Self {
        Self {
            argv: self.argv.iter().map(|word| change(word)).collect(),
            env: self.env.iter().map(|(key, value)| (key.clone(), change(value))).collect(),
            ..self.clone()
        }
    }

    /// What is started, if nothing is to be made for it before.
    pub fn command(&self) -> Result<Command, StartError> {
        let (program, args) = self.words()?;
        Ok(placed(Command::new(program).args(args), &self.env, self.dir.as_deref()))
    }

    /// The program, and its arguments.
    pub(super) fn words(&self) -> Result<(&OsString, &[OsString]), StartError> {
        self.argv.split_first().ok_or(StartError::NoCommand)
    }
}

impl<I: IntoIterator<Item = S>, S: Into<OsString>> From<I> for Program {
    fn from(argv: I) -> Self {
        Self::new(argv)
    }
}

/// A command with an environment and a place.
pub(super) fn placed(command: Command, env: &[(OsString, OsString)], dir: Option<&Path>) -> Command {
    let command = env.iter().fold(command, |command, (key, value)| command.env(key, value));
    match dir {
        Some(dir) => command.current_dir(dir),
        None => command,
    }
}
