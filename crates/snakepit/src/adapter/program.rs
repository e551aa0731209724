//! A program that becomes a worker: what is run, with which environment, and where.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::StartError;
use crate::custody::Command;

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
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
}

impl Program {
    /// A program by its path, or by its name in `PATH`, and its arguments.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), env: Vec::new(), dir: None }
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

    /// What a pool of it is called: the program, without its folder and its ending.
    pub(super) fn name(&self) -> String {
        let stem = self.argv.first().map(Path::new).and_then(Path::file_stem);
        stem.map_or_else(|| "command".into(), |stem| OsStr::to_string_lossy(stem).into_owned())
    }

    /// What is started.
    pub fn command(&self) -> Result<Command, StartError> {
        let (program, args) = self
            .argv
            .split_first()
            .ok_or_else(|| StartError::Missing("the pool's command is empty".into()))?;
        Ok(placed(Command::new(program).args(args), &self.env, self.dir.as_deref()))
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
