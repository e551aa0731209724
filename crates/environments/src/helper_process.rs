//! Runs tools as processes in custody, reads their output line by line, and limits their time.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::EnvironmentError;
use super::error::cannot;
use snakepit_custody::{self as custody, Command, ExitStatus, Run, SpawnError, WorkerId};

/// The maximum number of lines that are kept, and the maximum length of a line.
const KEPT_LINES: usize = 200;
const LINE_LIMIT: usize = 4 * 1024;

/// Runs helper processes: tools that prepare something for a worker.
#[derive(Clone)]
pub struct HelperRunner {
    run: Run,
    /// The name of the pool or command that the helpers work for.
    pub(super) owner: Arc<str>,
    dir: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// How a helper process ended.
#[derive(Debug)]
pub struct HelperOutcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// The last lines of both streams, in order.
    pub lines: Vec<String>,
}

impl HelperOutcome {
    /// Reports whether the process exited with 0.
    pub fn is_success(&self) -> bool {
        self.status == ExitStatus::Code(0)
    }
}

impl HelperRunner {
    /// Creates a runner for helpers in `run` and in the directory `dir`. The owner is a pool, or a command of the
    /// program.
    pub fn new(run: Run, owner: impl Into<Arc<str>>, dir: PathBuf) -> Self {
        Self { run, owner: owner.into(), dir, env: Vec::new() }
    }

    /// Adds environment variables to those of the host.
    pub fn env(mut self, env: &[(OsString, OsString)]) -> Self {
        self.env.extend_from_slice(env);
        self
    }

    pub(super) fn run_id(&self) -> custody::RunId {
        self.run.id()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs a command to its end, and calls `heard` for each line. Kills the process at the timeout, or if the future
    /// is dropped.
    pub async fn run(
        &self,
        step: &str,
        command: Command,
        timeout: Duration,
        heard: impl FnMut(&str),
    ) -> Result<HelperOutcome, EnvironmentError> {
        let spawn = |source| EnvironmentError::Spawn { step: step.to_owned(), source };
        let pipes = pipe_with_two_writers().map_err(cannot("make a pipe for", step))?;
        let (reader, [out, err]) = pipes;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(cannot("read a pipe of", step))?;
        let command = self.env.iter().fold(command, |command, (key, value)| command.env(key, value));
        let command = command
            .current_dir(&self.dir)
            .stdin(custody::Stdio::Null)
            .stdout(out)
            .stderr(err)
            .worker_id(self.next_id().map_err(spawn)?);
        let process = self.launch(command).await?.map_err(spawn)?;
        let guard = KillOnDrop(process.clone());
        let mut lines = HelperOutputReader { kept: Vec::new(), partial: Vec::new(), heard };
        let status = tokio::time::timeout(timeout, async {
            lines.read(reader).await;
            process.exited().await.status
        });
        let status = status.await;
        drop(guard);
        if let Ok(status) = status {
            return Ok(HelperOutcome { status, lines: lines.kept });
        }
        // The caller is about to clean up, so this waits until the process can no longer write.
        process.exited().await;
        Err(EnvironmentError::Timeout { step: step.to_owned(), after: timeout, output: lines.kept })
    }

    fn next_id(&self) -> Result<WorkerId, SpawnError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The name of the owner may exceed the length of a worker id.
        let owner: String = self.owner.chars().take(40).collect();
        WorkerId::new(format!("{owner}-helper-{number}"))
            .or_else(|_| WorkerId::new(format!("helper-{number}")))
            .map_err(|error| SpawnError::BadDescriptors(error.to_string()))
    }

    /// Spawns the process. Kills it if the future is dropped in the meantime.
    async fn launch(
        &self,
        command: Command,
    ) -> Result<Result<custody::WorkerProcess, SpawnError>, EnvironmentError> {
        let run = self.run.clone();
        let wanted = Arc::new(());
        let still = Arc::downgrade(&wanted);
        let spawned = tokio::task::spawn_blocking(move || {
            let process = run.spawn(command)?;
            if still.strong_count() == 0 {
                let _ = process.kill();
            }
            Ok(process)
        });
        let spawned = spawned.await.map_err(|_| EnvironmentError::Runtime);
        drop(wanted);
        spawned
    }
}

struct KillOnDrop(custody::WorkerProcess);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.0.try_wait().is_none() {
            let _ = self.0.kill();
        }
    }
}

/// Creates a pipe with a non-blocking reader and two writers. One pipe for both streams preserves their order.
fn pipe_with_two_writers() -> std::io::Result<(OwnedFd, [OwnedFd; 2])> {
    let (reader, writer) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let again = writer.try_clone()?;
    Ok((reader.into(), [writer.into(), again.into()]))
}

/// Splits the output of a process into lines.
struct HelperOutputReader<F> {
    kept: Vec<String>,
    partial: Vec<u8>,
    heard: F,
}

impl<F: FnMut(&str)> HelperOutputReader<F> {
    /// Reads until all writers are gone.
    async fn read(&mut self, mut reader: pipe::Receiver) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = reader.read(&mut buffer).await {
            for &byte in &buffer[..read] {
                match byte {
                    // A progress bar rewrites its line again and again. Each version counts as a line.
                    b'\n' | b'\r' => self.end_line(),
                    byte if self.partial.len() < LINE_LIMIT => self.partial.push(byte),
                    _ => {}
                }
            }
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.partial);
        let line: String = plain(&line).trim_end().to_owned();
        self.partial.clear();
        if line.is_empty() {
            return;
        }
        (self.heard)(&line);
        if self.kept.len() == KEPT_LINES {
            self.kept.remove(0);
        }
        self.kept.push(line);
    }
}

/// Removes colors and other terminal commands. `strip-ansi-escapes` is not used: it would add a parser for escapes
/// that no installer writes, and control characters would still need this loop.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                // `ESC [ … letter`
                chars.by_ref().find(char::is_ascii_alphabetic);
            }
            '\t' => text.push(' '),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}
