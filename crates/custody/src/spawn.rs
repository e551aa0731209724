//! From a [`Command`] to the message that the keeper gets: all checks that need no process, in words.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use crate::command::{Command, EnvBase, MAX_HANDED_FDS, Stdio, TerminalUse};
use crate::wire::{Orders, Stage, Strings};
use crate::{RUN_ID_VARIABLE, RunId, WORKER_ID_VARIABLE, WorkerId, file_limit};

/// Why a command does not run. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program.
    #[error("{program}: command not found")]
    NotFound {
        /// What was asked for.
        program: String,
    },
    /// The program is there, but it cannot be run.
    #[error("{program}: cannot be executed")]
    NotExecutable {
        /// Which file.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// An argument, a variable or a path has a NUL byte, which no program could receive.
    #[error("{what} contains a NUL byte: {value:?}")]
    NulByte {
        /// Which part of the command.
        what: &'static str,
        /// Its text.
        value: String,
    },
    /// A variable's name is empty or has a `=`.
    #[error("{0:?} cannot be the name of an environment variable")]
    BadVariable(String),
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {dir}")]
    Cwd {
        /// Which directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The host's own working directory is gone.
    #[error("the current directory is gone: change to one that exists, or give the command one")]
    NoCurrentDir {
        /// What the system said.
        source: io::Error,
    },
    /// A standard stream that should be inherited is closed.
    #[error("{stream} is closed and cannot be handed to the worker: connect it, for example to /dev/null")]
    ClosedStream {
        /// Which one.
        stream: &'static str,
    },
    /// Descriptors that cannot be handed over as asked.
    #[error("{0}")]
    BadDescriptors(String),
    /// The command is larger than the system takes.
    #[error("the command is too large: its arguments and its environment exceed what the system takes")]
    TooLarge,
    /// A limit that the system refuses.
    #[error("cannot set {what}")]
    Limit {
        /// Which one.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The ledger took no record, so nothing was started.
    #[error("refused: the ledger in {dir} cannot be written, and nothing runs unrecorded")]
    Ledger {
        /// The run's directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no room for another process.
    #[error("cannot start a process (while {step})")]
    Process {
        /// At which step.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The shim was killed before the program ran.
    #[error("the worker's shim was killed before the program ran")]
    ShimDied,
    /// The keeper died or does not answer; a new one is being started.
    #[error("the keeper is gone and its successor not yet ready: try again")]
    KeeperLost,
    /// The run is stopping or was stopped.
    #[error("the run is stopped")]
    Stopped,
    /// The caller is a forked copy of the host.
    #[error("this process is a forked copy of the host: it owns no run; open one of its own")]
    NotOwner,
    /// A living worker has this name already.
    #[error("a living worker is called {0} already")]
    DuplicateWorker(WorkerId),
}

impl SpawnError {
    /// The exit status that a shell would give: 127 not found, 126 not executable, 125 all else.
    pub fn shell_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }

    /// What a failure that the keeper reports means to the caller.
    pub(crate) fn from_stage(stage: Stage, errno: i32, program: &str, cwd: &Path, run_dir: &Path) -> Self {
        let source = io::Error::from_raw_os_error(errno);
        let process = |step, source| Self::Process { step, source };
        match stage {
            Stage::Cwd => Self::Cwd { dir: cwd.to_owned(), source },
            Stage::Rlimit => Self::Limit { what: "a resource limit", source },
            Stage::Nice => Self::Limit { what: "the niceness", source },
            Stage::OomScore => Self::Limit { what: "oom_score_adj", source },
            Stage::Ledger => Self::Ledger { dir: run_dir.to_owned(), source: file_limit::in_words(source) },
            Stage::Exec if errno == libc::E2BIG => Self::TooLarge,
            Stage::ShimDied => Self::ShimDied,
            Stage::KeeperDied => Self::KeeperLost,
            Stage::Exec => exec_error(program, cwd, source),
            Stage::Stopping => Self::Stopped,
            Stage::Descriptors => process("arranging the descriptors", source),
            Stage::Request => process("reading the request", source),
            Stage::Sockets => process("making its sockets", source),
            Stage::CloneShim => process("forking its shim", source),
            Stage::ShimSetup | Stage::Kernel => process("setting its shim up", source),
            Stage::UserMap => process("mapping the user into its namespace", source),
            Stage::MountProc => process("mounting its /proc", source),
            Stage::Cgroup => process("joining the run's cgroup", source),
            Stage::CloneWorker => process("forking it", source),
            Stage::Identity => process("reading its identity", source),
            Stage::Session => process("making its session", source),
            Stage::Terminal => process("giving it the terminal", source),
        }
    }
}

fn exec_error(program: &str, cwd: &Path, source: io::Error) -> SpawnError {
    let name = program.to_owned();
    if source.kind() != io::ErrorKind::NotFound {
        return SpawnError::NotExecutable { program: name, source };
    }
    // The same error says that the program's interpreter is missing.
    if program.contains('/') && cwd.join(program).exists() {
        let source = io::Error::other("its interpreter, named in its first line, does not exist");
        return SpawnError::NotExecutable { program: name, source };
    }
    SpawnError::NotFound { program: name }
}

/// A command ready to travel: the orders, and the descriptors beside them.
pub(crate) struct Prepared {
    pub(crate) orders: Orders<'static>,
    pub(crate) fds: Vec<OwnedFd>,
    /// The program as the caller wrote it, for errors.
    pub(crate) program: String,
    pub(crate) cwd: PathBuf,
}

/// Checks a command and turns it into a message.
pub(crate) fn prepare(
    command: Command,
    key: u64,
    worker: &WorkerId,
    run: RunId,
) -> Result<Prepared, SpawnError> {
    let cwd = match command.cwd {
        Some(dir) if dir.is_absolute() => dir,
        Some(dir) => current_dir()?.join(dir),
        None => current_dir()?,
    };
    #[cfg(portable)]
    if command.oom_score_adj.is_some() {
        let source = io::Error::from_raw_os_error(libc::ENOTSUP);
        return Err(SpawnError::Limit { what: "oom_score_adj", source });
    }
    let (envp, path) = environment(command.inherit_env, command.env, worker, run)?;
    let program = look_up(&command.program, path.or_else(|| std::env::var_os("PATH")), &cwd)?;
    let mut argv = Strings::one(command.program.as_bytes());
    for arg in &command.args {
        refuse_nul("an argument", arg)?;
        argv.push(&[arg.as_bytes()]);
    }
    refuse_nul("the working directory", cwd.as_os_str())?;
    let mut targets = vec![0, 1, 2];
    let mut fds = Vec::with_capacity(3 + command.fds.len());
    for (stdio, target) in command.stdio.into_iter().zip([0, 1, 2]) {
        fds.push(connect(stdio, target)?);
    }
    if command.fds.len() > MAX_HANDED_FDS {
        let count = command.fds.len();
        return Err(SpawnError::BadDescriptors(format!("{count} descriptors; {MAX_HANDED_FDS} is the most")));
    }
    for (fd, target) in command.fds {
        if target < 3 || targets.contains(&target) {
            return Err(SpawnError::BadDescriptors(format!(
                "descriptor number {target} is taken: each needs a number of its own from 3 on"
            )));
        }
        targets.push(target);
        fds.push(fd);
    }
    let orders = Orders {
        key,
        program: Strings::one(program.as_os_str().as_bytes()),
        argv,
        envp,
        cwd: Strings::one(cwd.as_os_str().as_bytes()),
        targets,
        rlimits: command.rlimits.iter().map(|limit| (limit.resource, limit.soft, limit.hard)).collect(),
        nice: command.nice,
        oom_score_adj: command.oom_score_adj,
        foreground: command.terminal == TerminalUse::Foreground,
    };
    Ok(Prepared { orders, fds, program: command.program.to_string_lossy().into_owned(), cwd })
}

fn current_dir() -> Result<PathBuf, SpawnError> {
    std::env::current_dir().map_err(|source| SpawnError::NoCurrentDir { source })
}

fn refuse_nul(what: &'static str, value: &OsStr) -> Result<(), SpawnError> {
    if value.as_bytes().contains(&0) {
        return Err(SpawnError::NulByte { what, value: value.to_string_lossy().into_owned() });
    }
    Ok(())
}

/// The worker's environment, and the `PATH` in it.
fn environment(
    base: EnvBase,
    changes: Vec<(OsString, Option<OsString>)>,
    worker: &WorkerId,
    run: RunId,
) -> Result<(Strings<'static>, Option<OsString>), SpawnError> {
    let mut changed: BTreeMap<OsString, Option<OsString>> = BTreeMap::new();
    for (key, value) in changes {
        if key.is_empty() || key.as_bytes().contains(&b'=') {
            return Err(SpawnError::BadVariable(key.to_string_lossy().into_owned()));
        }
        refuse_nul("a variable's name", &key)?;
        if let Some(value) = &value {
            refuse_nul("a variable's value", value)?;
        }
        changed.insert(key, value);
    }
    changed.insert(RUN_ID_VARIABLE.into(), Some(run.to_string().into()));
    changed.insert(WORKER_ID_VARIABLE.into(), Some(worker.as_str().into()));
    let mut strings = Strings::default();
    let mut path = None;
    let mut set = |key: &OsStr, value: OsString| {
        strings.push(&[key.as_bytes(), b"=", value.as_bytes()]);
        if key == "PATH" {
            path = Some(value);
        }
    };
    if base == EnvBase::Host {
        for (key, value) in std::env::vars_os().filter(|(key, _)| !changed.contains_key(key)) {
            set(&key, value);
        }
    }
    for (key, value) in changed {
        if let Some(value) = value {
            set(&key, value);
        }
    }
    Ok((strings, path))
}

/// Finds the program as a shell does: a name in `PATH`, anything with a slash as a path.
fn look_up(program: &OsStr, path: Option<OsString>, cwd: &Path) -> Result<PathBuf, SpawnError> {
    refuse_nul("the command", program)?;
    let name = || program.to_string_lossy().into_owned();
    if program.is_empty() {
        return Err(SpawnError::NotFound { program: "''".to_owned() });
    }
    if program.as_bytes().contains(&b'/') {
        // Whether it can be run, running it tells.
        return Ok(program.into());
    }
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for dir in std::env::split_paths(&path) {
        let candidate = cwd.join(dir).join(program);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(error),
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(source) => SpawnError::NotExecutable { program: name(), source },
        None => SpawnError::NotFound { program: name() },
    })
}

fn executable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(())
}

/// The descriptor that a standard stream is to be connected to.
fn connect(stdio: Stdio, number: i32) -> Result<OwnedFd, SpawnError> {
    let inherit = |fd: std::os::fd::BorrowedFd<'_>, stream| {
        fd.try_clone_to_owned().map_err(|_| SpawnError::ClosedStream { stream })
    };
    match (stdio, number) {
        (Stdio::Fd(fd), _) => Ok(fd),
        (Stdio::Null, _) => std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map(OwnedFd::from)
            .map_err(|source| SpawnError::Process { step: "opening /dev/null", source }),
        (Stdio::Inherit, 0) => inherit(std::io::stdin().as_fd(), "standard input"),
        (Stdio::Inherit, 1) => inherit(std::io::stdout().as_fd(), "standard output"),
        (Stdio::Inherit, _) => inherit(std::io::stderr().as_fd(), "standard error"),
    }
}
