//! Spawn errors: each names the thing, the cause and the way out.

use std::io;
use std::path::{Path, PathBuf};

use crate::WorkerId;
use crate::link::wire::SpawnStage;
use crate::state::file_limit;

/// The reason why a command does not run. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program does not exist.
    #[error("{program}: command not found")]
    NotFound {
        /// The program as the caller wrote it.
        program: String,
    },
    /// The program exists, but cannot be executed.
    #[error("{program}: cannot be executed")]
    NotExecutable {
        /// The program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An argument, a variable or a path contains a NUL byte, which cannot be passed to a program.
    #[error("{what} contains a NUL byte, which no program can receive: remove it from {value:?}")]
    NulByte {
        /// The part of the command.
        what: &'static str,
        /// The text with the NUL byte.
        value: String,
    },
    /// A variable's name is empty or contains `=`.
    #[error("{0:?} cannot be the name of an environment variable: it must not be empty or contain `=`")]
    BadVariable(String),
    /// The working directory cannot be entered.
    #[error(
        "cannot enter the working directory {dir}: it must exist, and this user must be allowed to enter it"
    )]
    Cwd {
        /// The directory.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The host's own working directory does not exist any more.
    #[error("the current directory is gone: change to one that exists, or set the command's directory")]
    NoCurrentDir {
        /// The error of the system.
        source: io::Error,
    },
    /// A standard stream that the worker should inherit is closed.
    #[error("{stream} is closed and cannot be passed to the worker: connect it, for example to /dev/null")]
    ClosedStream {
        /// The name of the stream.
        stream: &'static str,
    },
    /// The descriptors cannot be passed as requested.
    #[error("{0}")]
    BadDescriptors(String),
    /// The command is larger than the system accepts.
    #[error("the command is too large: shorten its arguments or its environment, or pass the data in a file")]
    TooLarge,
    /// The system refuses a limit.
    #[error("cannot set {what}: choose a value that this user may set")]
    Limit {
        /// The limit.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The ledger cannot be written, so nothing was started.
    #[error("the ledger in {dir} cannot be written, and nothing runs unrecorded: free space on that disk")]
    Ledger {
        /// The run's directory.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused a step of the start.
    #[error("cannot start a process: {step} failed (`snakepit doctor` shows the limits of this machine)")]
    Process {
        /// The step that failed.
        step: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The shim was killed before the program ran.
    #[error("the worker's shim was killed before the program ran: try again")]
    ShimDied,
    /// The keeper died or does not answer. A new one is being started.
    #[error("the keeper died and its successor is not ready yet: try again")]
    KeeperLost,
    /// The run is stopping or was stopped.
    #[error("the run is stopped: open another one")]
    Stopped,
    /// The caller is a forked copy of the host.
    #[error("this process is a forked copy of the host and owns no run: open a run of its own")]
    NotOwner,
    /// A living worker already has this name.
    #[error("a living worker is already called {0}: choose another name, or wait for its end")]
    DuplicateWorker(WorkerId),
}

impl SpawnError {
    /// Returns the exit status that a shell would use: 127 for a program that was not found, 126 for one that cannot be
    /// executed, 125 for all other errors.
    pub fn shell_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }

    /// Returns the error for a failure that the keeper reported.
    pub(crate) fn from_stage(
        stage: SpawnStage,
        errno: i32,
        program: &str,
        cwd: &Path,
        run_dir: &Path,
    ) -> Self {
        let source = io::Error::from_raw_os_error(errno);
        let process = |step, source| Self::Process { step, source };
        match stage {
            SpawnStage::Cwd => Self::Cwd { dir: cwd.to_owned(), source },
            SpawnStage::Rlimit => Self::Limit { what: "a resource limit", source },
            SpawnStage::Nice => Self::Limit { what: "the niceness", source },
            SpawnStage::OomScore => Self::Limit { what: "oom_score_adj", source },
            SpawnStage::Ledger => {
                Self::Ledger { dir: run_dir.to_owned(), source: file_limit::in_words(source) }
            }
            SpawnStage::Exec if errno == libc::E2BIG => Self::TooLarge,
            SpawnStage::ShimDied => Self::ShimDied,
            SpawnStage::KeeperDied => Self::KeeperLost,
            SpawnStage::Exec => exec_error(program, cwd, source),
            SpawnStage::Stopping => Self::Stopped,
            SpawnStage::Descriptors => process("arranging the descriptors", source),
            SpawnStage::Request => process("reading the request", source),
            SpawnStage::Sockets => process("creating the sockets", source),
            SpawnStage::CloneShim => process("forking the shim", source),
            SpawnStage::ShimSetup | SpawnStage::Kernel => process("setting up the shim", source),
            SpawnStage::UserMap => process("mapping the user into its namespace", source),
            SpawnStage::MountProc => process("mounting /proc", source),
            SpawnStage::Cgroup => process("joining the run's cgroup", source),
            SpawnStage::CloneWorker => process("forking the worker", source),
            SpawnStage::Identity => process("reading the worker's identity", source),
            SpawnStage::Session => process("creating the session", source),
            SpawnStage::Terminal => process("taking the terminal", source),
        }
    }
}

fn exec_error(program: &str, cwd: &Path, source: io::Error) -> SpawnError {
    let name = program.to_owned();
    if source.kind() != io::ErrorKind::NotFound {
        return SpawnError::NotExecutable { program: name, source };
    }
    // The system returns the same error if the interpreter of a script is missing.
    if program.contains('/') && cwd.join(program).exists() {
        let source = io::Error::other(
            "the interpreter in its first line does not exist: install it, or correct the line",
        );
        return SpawnError::NotExecutable { program: name, source };
    }
    SpawnError::NotFound { program: name }
}
