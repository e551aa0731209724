//! Turns a [`Command`] into the message for the keeper, with all checks that need no process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use crate::link::wire::{CStrings, LaunchOrders};
use crate::spawn::command::{Command, EnvBase, MAX_HANDED_FDS, Stdio, TerminalUse};
use crate::{RUN_ID_VARIABLE, RunId, WORKER_ID_VARIABLE, WorkerId};

use super::error::SpawnError;

/// A command that is ready to be sent: the orders and their descriptors.
pub(crate) struct PreparedSpawn {
    pub(crate) orders: LaunchOrders<'static>,
    pub(crate) fds: Vec<OwnedFd>,
    /// The program as the caller wrote it, for error messages.
    pub(crate) program: String,
    pub(crate) cwd: PathBuf,
}

/// Checks a command and turns it into a message.
pub(crate) fn prepare(
    command: Command,
    key: u64,
    worker: &WorkerId,
    run: RunId,
) -> Result<PreparedSpawn, SpawnError> {
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
    let mut argv = CStrings::one(command.program.as_bytes());
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
        return Err(SpawnError::BadDescriptors(format!(
            "the command passes {count} descriptors: at most {MAX_HANDED_FDS} can be passed"
        )));
    }
    for (fd, target) in command.fds {
        if target < 3 || targets.contains(&target) {
            return Err(SpawnError::BadDescriptors(format!(
                "descriptor number {target} is taken: give each descriptor its own number, 3 or above"
            )));
        }
        targets.push(target);
        fds.push(fd);
    }
    let orders = LaunchOrders {
        key,
        program: CStrings::one(program.as_os_str().as_bytes()),
        argv,
        envp,
        cwd: CStrings::one(cwd.as_os_str().as_bytes()),
        targets,
        rlimits: command.rlimits.iter().map(|limit| (limit.resource, limit.soft, limit.hard)).collect(),
        nice: command.nice,
        oom_score_adj: command.oom_score_adj,
        foreground: command.terminal == TerminalUse::Foreground,
    };
    Ok(PreparedSpawn { orders, fds, program: command.program.to_string_lossy().into_owned(), cwd })
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

/// Returns the worker's environment, and its `PATH`.
fn environment(
    base: EnvBase,
    changes: Vec<(OsString, Option<OsString>)>,
    worker: &WorkerId,
    run: RunId,
) -> Result<(CStrings<'static>, Option<OsString>), SpawnError> {
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
    let mut strings = CStrings::default();
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

/// Finds the program as a shell does: names in `PATH`, anything with a slash as a path.
fn look_up(program: &OsStr, path: Option<OsString>, cwd: &Path) -> Result<PathBuf, SpawnError> {
    refuse_nul("the command", program)?;
    let name = || program.to_string_lossy().into_owned();
    if program.is_empty() {
        return Err(SpawnError::NotFound { program: "''".to_owned() });
    }
    if program.as_bytes().contains(&b'/') {
        // Whether the file can be executed turns out when it is executed.
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

/// Returns the descriptor for a standard stream of the worker.
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
