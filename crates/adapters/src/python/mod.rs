//! Workers that speak `spec/wire.md` over an inherited socket: Python workers with the bundled SDK, and workers in
//! other languages with their own implementation.

mod handle;
mod interpreter;
pub mod sdk;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::future::{BoxFuture, FutureExt};

use super::program::{Program, placed};
use super::{Adapter, Handle, Spawner, StartError};
use crate::custody::Command;
use crate::environment::{Environment, Python};
use crate::transport::{BeatPipe, Connection, ReadyOutcome, Slate, StackPipe};
use handle::SocketHandle;
use interpreter::Interpreter;
use snakepit_core::PoolOptions;
use snakepit_protocol::message::Hello;

/// The size of the socket's buffers, where the system allows it. Larger buffers send a large message in fewer pieces.
const SOCKET_BUFFER: usize = 4 << 20;
/// The file descriptors of a worker.
const SOCKET_FD: i32 = 3;
const SLATE_FD: i32 = 4;
const STACK_FD: i32 = 5;
const BEAT_FD: i32 = 6;

/// The features of this host: it takes several items of a stream in one frame.
const FEATURES: &[&str] = &["items"];

/// A worker written in Python: a file or an importable module.
///
/// ```
/// use snakepit::adapter::PythonWorker;
/// use snakepit::python;
///
/// let pool = python(PythonWorker::new("worker.py").interpreter("/opt/venv/bin/python").env("MODE", "fast"));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PythonWorker {
    worker: PathBuf,
    environment: Environment,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
}

impl PythonWorker {
    /// Creates a worker from a file (`worker.py`) or a module (`package.worker`).
    pub fn new(worker: impl Into<PathBuf>) -> Self {
        Self { worker: worker.into(), environment: Environment::new(), env: Vec::new(), dir: None }
    }

    /// Returns the path of the worker's file, or `None` if the worker is named by its module.
    pub fn file(&self) -> Option<PathBuf> {
        is_file(&self.worker).then(|| self.resolved())
    }

    /// Sets the interpreter by its path, or by its name in `PATH`. The default is that of `$VIRTUAL_ENV`, or else
    /// `python3` in `PATH`.
    pub fn interpreter(mut self, python: impl Into<PathBuf>) -> Self {
        self.environment.python = Some(Python::interpreter(python.into()));
        self
    }

    /// Sets the Python: a version (`3.12`), the path or name of an interpreter, or the directory of a virtual
    /// environment.
    pub fn python(mut self, python: impl Into<Python>) -> Self {
        self.environment = self.environment.python(python);
        self
    }

    /// Sets the packages to install, such as `numpy>=2`, in an environment that is built once and kept.
    pub fn requirements(mut self, requirements: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.environment = self.environment.requirements(requirements);
        self
    }

    /// Sets the Python and everything installed in its environment. Replaces earlier settings.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }
}

impl<P: Into<PathBuf>> From<P> for PythonWorker {
    fn from(worker: P) -> Self {
        Self::new(worker)
    }
}

/// Returns the options of a pool of Python workers. The pool is named after the file or module.
///
/// ```
/// let pool = snakepit::python("worker.py").workers(4);
/// assert_eq!(pool.pool_name(), "worker");
/// ```
pub fn pool(worker: impl Into<PythonWorker>) -> PoolOptions {
    let worker = worker.into();
    let name = worker.name();
    PoolOptions::new(name, SocketAdapter { launch: ProcessLaunch::python(worker) })
}

/// Returns the options of a pool of workers in any language that speak `spec/wire.md`. The pool is named after the
/// program.
///
/// ```
/// let pool = snakepit::command(["node", "worker.mjs"]).workers(4);
/// ```
pub fn command_pool(program: impl Into<Program>) -> PoolOptions {
    let program = program.into();
    PoolOptions::new(program.name(), SocketAdapter { launch: ProcessLaunch::command(program) })
}

/// How to start the processes of a pool.
pub(super) enum ProcessLaunch {
    Python { worker: Box<PythonWorker>, found: OnceLock<ResolvedPython> },
    Command { program: Program, found: OnceLock<Interpreter> },
}

/// What all Python workers of a pool share.
pub(super) struct ResolvedPython {
    interpreter: Interpreter,
    entry: PathBuf,
}

struct SocketAdapter {
    launch: ProcessLaunch,
}

impl Adapter for SocketAdapter {
    fn environment(&self) -> Option<&Environment> {
        self.launch.environment()
    }

    fn init<'a>(&'a self, spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        self.launch.prepare(spawner).boxed()
    }

    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let command = self.launch.start()?;
            let (ours, theirs) = socket_pair().map_err(|error| spawner.system("a socket", error))?;
            let slate =
                Slate::new(spawner.concurrency()).map_err(|error| spawner.system("a slate", error))?;
            let slate_fd =
                slate.fd().try_clone_to_owned().map_err(|error| spawner.system("a slate", error))?;
            let (stacks, stack_fd) =
                StackPipe::new().map_err(|error| spawner.system("a pipe for stacks", error))?;
            let (beat, beat_fd) =
                BeatPipe::new().map_err(|error| spawner.system("a pipe for beats", error))?;
            let command = command
                .fd(theirs, SOCKET_FD)
                .fd(slate_fd, SLATE_FD)
                .fd(stack_fd, STACK_FD)
                .fd(beat_fd, BEAT_FD)
                .env("SNAKEPIT_FD", SOCKET_FD.to_string())
                .env("SNAKEPIT_SLATE_FD", SLATE_FD.to_string())
                .env("SNAKEPIT_STACK_FD", STACK_FD.to_string())
                .env("SNAKEPIT_BEAT_FD", BEAT_FD.to_string());
            let hello = Hello {
                protocol: 1,
                engine: env!("CARGO_PKG_VERSION"),
                pool: spawner.pool(),
                worker: spawner.worker_id().as_str(),
                concurrency: spawner.concurrency(),
                max_frame: spawner.max_frame(),
                features: FEATURES,
            };
            let output = spawner.output();
            let (connection, first_answer) = Connection::open(ours, slate, output, &hello)
                .map_err(|error| spawner.system("a connection", error))?;
            let process = spawner.spawn(command).await?;
            let first = tokio::select! {
                // A worker that was ready before it ended counts as started. Its end is reported like any other.
                biased;
                first = first_answer => first.ok(),
                fault = connection.closed() => return Err(spawner.ended_early(&process, fault).await),
            };
            match first {
                Some(ReadyOutcome::Yes(ready)) => {
                    Ok(Arc::new(SocketHandle::new(process, connection, stacks, beat, *ready))
                        as Arc<dyn Handle>)
                }
                Some(ReadyOutcome::Failed(error)) => {
                    Err(StartError::Failed { worker: spawner.worker_id().clone(), error: Box::new(error) })
                }
                None => Err(spawner.ended_early(&process, connection.closed().await).await),
            }
        }
        .boxed()
    }
}

impl ProcessLaunch {
    pub(super) fn python(mut worker: PythonWorker) -> Self {
        // The variables may name a package index or a proxy, which a build ahead of time needs, too.
        worker.environment.variables.clone_from(&worker.env);
        Self::Python { worker: Box::new(worker), found: OnceLock::new() }
    }

    pub(super) fn command(mut program: Program) -> Self {
        if let Some(environment) = &mut program.environment {
            environment.variables.clone_from(&program.env);
        }
        Self::Command { program, found: OnceLock::new() }
    }

    pub(super) fn environment(&self) -> Option<&Environment> {
        match self {
            ProcessLaunch::Python { worker, .. } => Some(&worker.environment),
            ProcessLaunch::Command { program, .. } => program.environment.as_deref(),
        }
    }

    /// Finds everything that the workers of a pool need.
    pub(super) async fn prepare(&self, spawner: &Spawner) -> Result<(), StartError> {
        let (worker, found) = match self {
            ProcessLaunch::Python { worker, found } => (worker, found),
            ProcessLaunch::Command { program, found } => {
                if let Some(environment) = &program.environment {
                    let dir = program.dir.as_deref();
                    let _ = found.set(interpreter::resolve(environment, dir, spawner).await?);
                }
                return Ok(());
            }
        };
        if let Some(path) = worker.file()
            && !path.exists()
        {
            return Err(StartError::NoSuchFile { path: path.clone() });
        }
        let interpreter = interpreter::resolve(&worker.environment, worker.dir.as_deref(), spawner).await?;
        let state_dir = spawner.state_dir().unwrap_or(Path::new("/nonexistent")).to_owned();
        let installed = tokio::task::spawn_blocking(move || sdk::install(&state_dir)).await;
        let entry = match installed {
            Ok(entry) => entry.map_err(|error| spawner.system("a directory for the Python SDK", error))?,
            Err(_) => return Err(StartError::ShuttingDown),
        };
        let _ = found.set(ResolvedPython { interpreter, entry });
        Ok(())
    }

    /// Returns the command that starts a worker.
    pub(super) fn start(&self) -> Result<Command, StartError> {
        match self {
            ProcessLaunch::Command { program, found } => start_program(program, found),
            ProcessLaunch::Python { worker, found } => {
                let found = found.get().ok_or(StartError::NotPrepared)?;
                let command = Command::new(&found.interpreter.path).arg(&found.entry).arg(worker.argument());
                let command = placed(command, &found.interpreter.variables(), None);
                Ok(placed(command, &worker.env, worker.dir.as_deref()))
            }
        }
    }

    /// Returns the command that starts a worker, with each word of a program's arguments and variables changed.
    #[cfg(feature = "http")]
    pub(super) fn start_with(
        &self,
        change: impl Fn(&std::ffi::OsStr) -> OsString,
    ) -> Result<Command, StartError> {
        match self {
            ProcessLaunch::Command { program, found } => start_program(&program.changed(change), found),
            ProcessLaunch::Python { .. } => self.start(),
        }
    }
}

/// Returns the command of a program, in the environment that was built for it, if any.
fn start_program(program: &Program, found: &OnceLock<Interpreter>) -> Result<Command, StartError> {
    if program.environment.is_none() {
        return program.command();
    }
    let found = found.get().ok_or(StartError::NotPrepared)?;
    let (name, args) = program.words()?;
    let command = placed(Command::new(found.program(name)).args(args), &found.variables(), None);
    Ok(placed(command, &program.env, program.dir.as_deref()))
}

impl PythonWorker {
    /// Returns the name of the worker's pool.
    pub(super) fn name(&self) -> String {
        let stem = self.worker.file_stem();
        stem.map_or_else(|| "python".into(), |stem| stem.to_string_lossy().into_owned())
    }

    /// Returns the path of the file as the host sees it.
    fn resolved(&self) -> PathBuf {
        std::path::absolute(&self.worker).unwrap_or_else(|_| self.worker.clone())
    }

    fn argument(&self) -> PathBuf {
        self.file().unwrap_or_else(|| self.worker.clone())
    }
}

/// Reports whether a worker is named by its file, rather than its module.
pub fn is_file(worker: &Path) -> bool {
    worker.extension().is_some_and(|extension| extension == "py") || worker.components().count() > 1
}

fn socket_pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    use rustix::net::sockopt;
    let (ours, theirs) = UnixStream::pair()?;
    for socket in [&ours, &theirs] {
        // On Linux, only root may exceed the system's limit. A smaller buffer is slower, but works.
        #[cfg(target_os = "linux")]
        if sockopt::set_socket_send_buffer_size_force(socket, SOCKET_BUFFER).is_ok() {
            continue;
        }
        let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER);
    }
    Ok((ours, theirs.into()))
}
