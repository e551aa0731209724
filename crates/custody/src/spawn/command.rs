//! What to start: a program with its arguments, environment, directory, descriptors and limits.

use std::ffi::{OsStr, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

use crate::WorkerId;

/// The most descriptors that one spawn can pass in addition to the standard three. One message can carry this many.
pub const MAX_HANDED_FDS: usize = 240;

/// The target of a standard stream of the worker.
#[derive(Debug)]
pub enum Stdio {
    /// The stream of the host.
    Inherit,
    /// `/dev/null`.
    Null,
    /// A descriptor of the caller, which the spawn consumes.
    Fd(OwnedFd),
}

impl From<OwnedFd> for Stdio {
    fn from(fd: OwnedFd) -> Self {
        Self::Fd(fd)
    }
}

/// A resource limit: the kernel's number (`libc::RLIMIT_NOFILE`, …), the soft and the hard limit.
#[derive(Clone, Copy, Debug)]
pub struct Rlimit {
    /// The number of the resource.
    pub resource: i32,
    /// The limit that is enforced.
    pub soft: u64,
    /// The highest value to which the worker may raise the soft limit.
    pub hard: u64,
}

/// A command to run in custody.
///
/// ```no_run
/// use snakepit_custody::{Command, CustodyOptions, Run};
///
/// let run = Run::open(CustodyOptions::default())?;
/// let worker = run.spawn(Command::new("python3").arg("worker.py").env("PYTHONUNBUFFERED", "1"))?;
/// println!("{:?}", worker.wait());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) inherit_env: EnvBase,
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) stdio: [Stdio; 3],
    pub(crate) fds: Vec<(OwnedFd, RawFd)>,
    pub(crate) rlimits: Vec<Rlimit>,
    pub(crate) nice: Option<i32>,
    pub(crate) oom_score_adj: Option<i32>,
    pub(crate) worker_id: Option<WorkerId>,
    pub(crate) terminal: TerminalUse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnvBase {
    Host,
    Empty,
}

/// Whether the worker's group becomes the foreground group of the terminal on its standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TerminalUse {
    /// The worker stays in the background.
    #[default]
    Background,
    /// The worker takes the terminal before its program runs. Only in [`crate::Session::Caller`].
    Foreground,
}

impl Command {
    /// Creates a command for a program, given by its path or by a name that is looked up in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            inherit_env: EnvBase::Host,
            env: Vec::new(),
            cwd: None,
            stdio: [Stdio::Inherit, Stdio::Inherit, Stdio::Inherit],
            fds: Vec::new(),
            rlimits: Vec::new(),
            nice: None,
            oom_score_adj: None,
            worker_id: None,
            terminal: TerminalUse::Background,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable on top of the host's environment.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable from the host's environment.
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), None));
        self
    }

    /// Returns whether the command itself sets or removes this variable.
    pub fn says(&self, key: impl AsRef<OsStr>) -> bool {
        self.env.iter().any(|(name, _)| name == key.as_ref())
    }

    /// Starts from an empty environment. The worker always gets the run's own two variables.
    pub fn env_clear(mut self) -> Self {
        self.inherit_env = EnvBase::Empty;
        self.env.clear();
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Connects standard input.
    pub fn stdin(mut self, stdio: impl Into<Stdio>) -> Self {
        self.stdio[0] = stdio.into();
        self
    }

    /// Connects standard output.
    pub fn stdout(mut self, stdio: impl Into<Stdio>) -> Self {
        self.stdio[1] = stdio.into();
        self
    }

    /// Connects standard error.
    pub fn stderr(mut self, stdio: impl Into<Stdio>) -> Self {
        self.stdio[2] = stdio.into();
        self
    }

    /// Passes a descriptor, which the worker gets as number `target` (3 or above).
    pub fn fd(mut self, fd: impl Into<OwnedFd>, target: RawFd) -> Self {
        self.fds.push((fd.into(), target));
        self
    }

    /// Sets a resource limit.
    pub fn rlimit(mut self, limit: Rlimit) -> Self {
        self.rlimits.push(limit);
        self
    }

    /// Sets the niceness.
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice);
        self
    }

    /// Sets how likely the kernel is to kill the worker when memory runs out (-1000 to 1000).
    pub fn oom_score_adj(mut self, adj: i32) -> Self {
        self.oom_score_adj = Some(adj);
        self
    }

    /// Names the worker. The default names are `w1`, `w2`, ….
    pub fn worker_id(mut self, id: WorkerId) -> Self {
        self.worker_id = Some(id);
        self
    }

    /// Sets whether the worker takes the terminal.
    pub fn terminal(mut self, terminal: TerminalUse) -> Self {
        self.terminal = terminal;
        self
    }
}
