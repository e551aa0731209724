//! The spawner that an adapter gets from custody. It is the only source of worker processes.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::ProtocolFault;
use crate::RemoteError;
use crate::custody::{self, Command, ExitStatus, Run, WorkerId};
use crate::environment::{EnvironmentError, HelperRunner};
use crate::hardware::{GpuError, Variable, given};
use crate::output::{Output, OutputStream};
use crate::value::ValueError;

/// Why a worker did not start.
///
/// ```no_run
/// use snakepit::{EngineError, Snakepit, StartError, python};
///
/// # async fn example() {
/// match Snakepit::builder().pool(python("worker.py")).start().await {
///     Ok(pit) => drop(pit),
///     Err(EngineError::Start { pool, source: StartError::Exited { output, .. } }) => {
///         eprintln!("the workers of {pool} end at once:\n{}", output.join("\n"));
///     }
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The process could not be started.
    #[error(transparent)]
    Spawn(#[from] custody::SpawnError),
    /// The worker ended before it was ready.
    #[error("worker {worker} ended before it was ready, with {status}{}{}", shown(.output), without_sdk(.output))]
    Exited {
        /// The worker.
        worker: WorkerId,
        /// The status with which it ended.
        status: ExitStatus,
        /// The last lines that it printed.
        output: Vec<String>,
    },
    /// The worker was not ready in time.
    #[error("worker {worker} was not ready within {after:?} (worker_start_timeout){}", never_ready(.awaited.as_ref(), .output))]
    Timeout {
        /// The worker.
        worker: WorkerId,
        /// The time that it had.
        after: Duration,
        /// What its adapter was waiting for, if known.
        awaited: Option<ReadinessHint>,
        /// The last lines that it printed.
        output: Vec<String>,
    },
    /// The worker's own code failed while it was loaded.
    #[error("worker {worker} cannot start: {error}{}", shown_traceback(.error))]
    Failed {
        /// The worker.
        worker: WorkerId,
        /// Its error.
        error: Box<RemoteError>,
    },
    /// A warm-up call of the worker failed.
    #[error(
        "worker {worker} is not ready: its warm-up call of {command} failed: {reason}{}\n\
         correct the command or its arguments, or leave the call out of `warm_up`",
        shown(.output)
    )]
    WarmUp {
        /// The worker.
        worker: WorkerId,
        /// The command.
        command: String,
        /// Why the call failed.
        reason: String,
        /// The last lines that the worker printed.
        output: Vec<String>,
    },
    /// The worker's health hook reports that it cannot serve.
    #[error(
        "worker {worker} is not healthy: {reason}; repair what its health hook checks, or correct the hook"
    )]
    Unhealthy {
        /// The worker.
        worker: WorkerId,
        /// The reason that the hook gave.
        reason: String,
    },
    /// The worker violated the protocol.
    #[error("worker {worker}: {fault}{}", shown(.output))]
    Protocol {
        /// The worker.
        worker: WorkerId,
        /// The violation.
        fault: ProtocolFault,
        /// The last lines that the worker printed.
        output: Vec<String>,
    },
    /// The worker's Python, or a package that it needs, is missing.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// GPUs of the pool are missing.
    #[error(transparent)]
    Gpus(#[from] GpuError),
    /// The pool stopped before it was ready.
    #[error("the pool stopped before the worker was ready")]
    Stopped,
    /// The worker's file does not exist.
    #[error("the worker {} does not exist: check its path", .path.display())]
    NoSuchFile {
        /// The file.
        path: PathBuf,
    },
    /// The pool's command names no program.
    #[error("the pool's command is empty: name a program")]
    NoCommand,
    /// The pool's name does not yield valid names for its workers.
    #[error("the workers of the pool cannot be named after it: give the pool another name")]
    Name(#[from] custody::InvalidId),
    /// The settings of the adapter contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The adapter declares that it starts no processes, but starts one.
    #[error(
        "the pool has no custody, because its adapter says that it starts no processes: return true from `starts_processes`"
    )]
    NoCustody,
    /// `start_worker` was called before `init`.
    #[error("the pool was not prepared: run `init` of the adapter before `start_worker`")]
    NotPrepared,
    /// The host's runtime is shutting down.
    #[error("the tokio runtime is shutting down: keep it until the engine has stopped")]
    ShuttingDown,
    /// Workers became ready, but died again and again.
    #[error("its workers become ready, but keep dying: correct the cause of the last death: {0}")]
    KeepsDying(String),
    /// The system denied a resource.
    #[error("cannot create {what} for worker {worker}")]
    System {
        /// The worker.
        worker: WorkerId,
        /// The resource that could not be created.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The worker's introduction cannot be decoded.
    #[error("the introduction of worker {worker} cannot be read: use the SDK that comes with this version")]
    Introduction {
        /// The worker.
        worker: WorkerId,
        /// The error of the decoder.
        #[source]
        source: ValueError,
    },
}

/// What an adapter waits for while a worker starts. If it does not come in time, the error says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadinessHint {
    /// What is missing: `no ready line came`.
    pub missing: String,
    /// What a person can do about it.
    pub way_out: String,
}

fn never_ready(awaited: Option<&ReadinessHint>, output: &[String]) -> String {
    match awaited {
        None => shown(output),
        Some(ReadinessHint { missing, way_out }) if output.is_empty() => {
            format!(": {missing}; it printed nothing\n{way_out}")
        }
        Some(ReadinessHint { missing, way_out }) => format!(": {missing}{}\n{way_out}", shown(output)),
    }
}

fn shown(output: &[String]) -> String {
    if output.is_empty() { String::new() } else { format!("; its last lines:\n  {}", output.join("\n  ")) }
}

/// Returns advice if the worker's last lines show that its Python lacks Snakepit's SDK, or has another package of that
/// name.
fn without_sdk(output: &[String]) -> &'static str {
    const SIGNS: [&str; 3] =
        ["No module named 'snakepit'", "No module named snakepit", "module 'snakepit' has no attribute"];
    let is_sign = |line: &String| SIGNS.iter().any(|sign| line.contains(sign));
    if output.iter().any(is_sign) {
        "\nits Python does not have Snakepit's SDK: `snakepit sdk install --into VENV` puts it into a virtual \
         environment, and PYTHONPATH=\"$(snakepit sdk path)\" works without one"
    } else {
        ""
    }
}

fn shown_traceback(error: &RemoteError) -> String {
    error.traceback.as_deref().map_or_else(String::new, |traceback| format!("\n{}", traceback.trim_end()))
}

/// How long to wait for the end and the last lines of a worker that disconnected before it was ready.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts the process of one worker, in custody and with its output captured.
///
/// ```no_run
/// use snakepit::adapter::{Spawner, StartError};
/// use snakepit::custody::{Command, WorkerProcess};
///
/// async fn start(spawner: &Spawner) -> Result<WorkerProcess, StartError> {
///     let command = Command::new("my-worker").arg("--concurrency").arg(spawner.concurrency().to_string());
///     spawner.spawn(command).await
/// }
/// ```
pub struct Spawner {
    run: Option<Run>,
    worker: WorkerId,
    pool: Arc<str>,
    concurrency: usize,
    max_frame: usize,
    output: Arc<Output>,
    /// The number of the worker's place in the pool, and the device that the worker should use.
    slot: usize,
    device: Option<Arc<str>>,
    /// The variables of the worker's environment, unless its own command sets them.
    variables: Vec<Variable>,
    /// Whether the worker has the host's standard streams.
    at_terminal: bool,
    /// Whether the workers that the pool is about to start will have them.
    will_be_at_terminal: bool,
    process: Arc<OnceLock<custody::WorkerProcess>>,
    /// What the adapter is waiting for.
    awaited: Arc<Mutex<Option<ReadinessHint>>>,
    /// Dropped when the process is no longer wanted.
    wanted: Arc<()>,
}

impl Spawner {
    /// Creates a spawner of one worker. Tests of adapters use it without an engine.
    pub fn new(
        run: Option<Run>,
        worker: WorkerId,
        pool: Arc<str>,
        (concurrency, max_frame): (usize, usize),
        output: Arc<Output>,
    ) -> Self {
        Self {
            run,
            worker,
            pool,
            concurrency,
            max_frame,
            output,
            slot: 0,
            device: None,
            variables: Vec::new(),
            at_terminal: false,
            will_be_at_terminal: false,
            process: Arc::default(),
            awaited: Arc::default(),
            wanted: Arc::default(),
        }
    }

    pub(crate) fn at(mut self, slot: usize, device: Option<Arc<str>>, variables: Vec<Variable>) -> Self {
        (self.slot, self.device, self.variables) = (slot, device, variables);
        self
    }

    /// Returns the number of the worker's place. No other worker of the pool has the same number at the same time.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the device that the worker should use, if the pool assigns devices.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Gives the worker the host's standard streams, for a debugger.
    pub(crate) fn with_terminal(mut self) -> Self {
        self.at_terminal = true;
        self
    }

    /// Sets whether the workers of the pool that is being prepared will have a terminal.
    pub(crate) fn with_debugger(mut self, debug: bool) -> Self {
        self.will_be_at_terminal = debug;
        self
    }

    /// Returns an error if the worker would have a terminal. For adapters that read their workers' standard output.
    pub fn refuse_debug(&self) -> Result<(), StartError> {
        if self.at_terminal || self.will_be_at_terminal {
            return Err(StartError::Settings(
                "`debug` gives a worker the terminal, but this adapter reads what it writes to standard output: \
                 leave `debug` out"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Returns the worker's name.
    pub fn worker_id(&self) -> &WorkerId {
        &self.worker
    }

    /// Returns the pool's name.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns the number of calls that the worker should execute at the same time.
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Returns the size of the largest message, in bytes.
    pub fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// Returns the captured output of the worker.
    pub fn output(&self) -> Arc<Output> {
        Arc::clone(&self.output)
    }

    /// Returns the last lines that the worker printed.
    pub fn last_lines(&self) -> Vec<String> {
        self.output.shown()
    }

    /// Returns the directory in which the engine keeps its files.
    pub fn state_dir(&self) -> Option<&std::path::Path> {
        self.run.as_ref().map(Run::state_dir)
    }

    /// Returns the directory of this run, which is removed when the run ends.
    pub fn run_dir(&self) -> Option<&std::path::Path> {
        self.run.as_ref().map(Run::dir)
    }

    /// Returns a runner for other processes than the worker, such as those that prepare something for it.
    pub fn helpers(&self, dir: std::path::PathBuf) -> Result<HelperRunner, StartError> {
        let run = self.run.clone().ok_or(StartError::NoCustody)?;
        Ok(HelperRunner::new(run, Arc::clone(&self.pool), dir))
    }

    /// Returns the cell of the process, which the pool checks when the start fails or takes too long.
    pub(crate) fn process(&self) -> Arc<OnceLock<custody::WorkerProcess>> {
        Arc::clone(&self.process)
    }

    /// Sets what is waited for from now on. The error reports it if the worker is not ready in time.
    pub fn awaits(&self, missing: impl Into<String>, way_out: impl Into<String>) {
        let awaited = ReadinessHint { missing: missing.into(), way_out: way_out.into() };
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = Some(awaited);
    }

    /// Clears what was waited for, because it has come.
    pub fn awaits_no_more(&self) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns what is waited for, which the pool reports when the start takes too long.
    pub(crate) fn awaited(&self) -> Arc<Mutex<Option<ReadinessHint>>> {
        Arc::clone(&self.awaited)
    }

    /// Starts the process. Standard input is `/dev/null`; standard output and error are read as log lines.
    pub async fn spawn(&self, command: Command) -> Result<custody::WorkerProcess, StartError> {
        let (run, command) = self.placed(command)?;
        if self.at_terminal {
            return self.launch(run, command).await;
        }
        let (out_reader, out_writer) = self.pipe()?;
        let (err_reader, err_writer) = self.pipe()?;
        let command = command.stdin(custody::Stdio::Null).stdout(out_writer).stderr(err_writer);
        let process = self.launch(run, command).await?;
        self.output.capture(out_reader, OutputStream::Stdout);
        self.output.capture(err_reader, OutputStream::Stderr);
        Ok(process)
    }

    /// Starts the process like [`Spawner::spawn`], but returns its standard output for the caller to read.
    pub async fn spawn_tapped(
        &self,
        command: Command,
        stdin: custody::Stdio,
    ) -> Result<(custody::WorkerProcess, OwnedFd), StartError> {
        self.refuse_debug()?;
        let (run, command) = self.placed(command)?;
        let (out_reader, out_writer) = self.pipe()?;
        let (err_reader, err_writer) = self.pipe()?;
        let command = command.stdin(stdin).stdout(out_writer).stderr(err_writer);
        let process = self.launch(run, command).await?;
        self.output.capture(err_reader, OutputStream::Stderr);
        Ok((process, out_reader))
    }

    /// Adds to a command the variables that every worker gets.
    fn placed(&self, command: Command) -> Result<(Run, Command), StartError> {
        let run = self.run.clone().ok_or(StartError::NoCustody)?;
        let command = given(command, &self.variables);
        let command = command.worker_id(self.worker.clone()).env("SNAKEPIT_SLOT", self.slot.to_string());
        let command = match &self.device {
            Some(device) => command.env("SNAKEPIT_DEVICE", &**device),
            None => command,
        };
        Ok((run, command))
    }

    async fn launch(&self, run: Run, command: Command) -> Result<custody::WorkerProcess, StartError> {
        let (noted, wanted) = (Arc::clone(&self.process), Arc::downgrade(&self.wanted));
        let spawned = tokio::task::spawn_blocking(move || {
            let process = run.spawn(command)?;
            let _ = noted.set(process.clone());
            // The caller's timeout has expired meanwhile. It may have looked for the process before it was recorded.
            if wanted.strong_count() == 0 {
                let _ = process.kill();
            }
            Ok::<_, StartError>(process)
        });
        let spawned = spawned.await;
        spawned.map_err(|_| StartError::ShuttingDown)?
    }

    fn pipe(&self) -> Result<(OwnedFd, OwnedFd), StartError> {
        let pipe = io::pipe().and_then(|(reader, writer)| {
            rustix::io::ioctl_fionbio(&reader, true)?;
            Ok((reader.into(), writer.into()))
        });
        pipe.map_err(|error| self.system("a pipe for its output", error))
    }

    /// Returns why a worker disconnected before it was ready.
    pub async fn ended_early(
        &self,
        process: &custody::WorkerProcess,
        fault: impl Into<ProtocolFault>,
    ) -> StartError {
        let worker = self.worker.clone();
        match tokio::time::timeout(LAST_WORDS, process.exited()).await {
            Ok(exit) => {
                let _ = tokio::time::timeout(LAST_WORDS, self.output.complete()).await;
                StartError::Exited { worker, status: exit.status, output: self.last_lines() }
            }
            Err(_) => self.fault(ProtocolFault::BeforeReady(Box::new(fault.into()))),
        }
    }

    /// Returns the error for a worker that violates the protocol.
    pub fn fault(&self, fault: impl Into<ProtocolFault>) -> StartError {
        StartError::Protocol { worker: self.worker.clone(), fault: fault.into(), output: self.last_lines() }
    }

    /// Returns a system error that names this worker.
    pub fn system(&self, what: &'static str, source: io::Error) -> StartError {
        StartError::System { worker: self.worker.clone(), what, source }
    }
}
