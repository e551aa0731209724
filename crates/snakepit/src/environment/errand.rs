//! The processes that are needed on the way: in custody like every other, heard line by line, and bounded in time.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::EnvironmentError;
use super::error::place;
use crate::custody::{self, Command, ExitStatus, Run, SpawnError, WorkerId};

/// The most lines that are kept, and the most bytes of one.
const KEPT_LINES: usize = 200;
const LINE_LIMIT: usize = 4 * 1024;

/// Runs processes for whoever prepares something.
#[derive(Clone)]
pub(crate) struct Errands {
    run: Run,
    /// For whom: the name of a pool.
    pub(super) owner: Arc<str>,
    dir: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    /// Its last lines, of both streams in their order.
    pub(crate) lines: Vec<String>,
}

impl Done {
    pub(crate) fn is_fine(&self) -> bool {
        self.status == ExitStatus::Code(0)
    }
}

impl Errands {
    pub(crate) fn new(run: Run, owner: impl Into<Arc<str>>, dir: PathBuf) -> Self {
        Self { run, owner: owner.into(), dir, env: Vec::new() }
    }

    /// With these variables on top of the host's.
    pub(crate) fn env(mut self, env: &[(OsString, OsString)]) -> Self {
        self.env.extend_from_slice(env);
        self
    }

    pub(super) fn run_id(&self) -> custody::RunId {
        self.run.id()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs a command to its end. Whoever loses patience, or drops this, ends it.
    pub(crate) async fn run(
        &self,
        step: &str,
        command: Command,
        patience: Duration,
        heard: impl FnMut(&str),
    ) -> Result<Done, EnvironmentError> {
        let spawn = |source| EnvironmentError::Spawn { step: step.to_owned(), source };
        let pipes = pipe_of_two().map_err(place("make a pipe for", step))?;
        let (reader, [out, err]) = pipes;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(place("read a pipe of", step))?;
        let command = self.env.iter().fold(command, |command, (key, value)| command.env(key, value));
        let command = command
            .current_dir(&self.dir)
            .stdin(custody::Stdio::Null)
            .stdout(out)
            .stderr(err)
            .worker_id(self.next_id().map_err(spawn)?);
        let process = self.launch(command).await?.map_err(spawn)?;
        let guard = EndOnDrop(process.clone());
        let mut lines = Lines { kept: Vec::new(), partial: Vec::new(), heard };
        let status = tokio::time::timeout(patience, async {
            lines.read(reader).await;
            process.exited().await.status
        });
        let status = status.await;
        drop(guard);
        if let Ok(status) = status {
            return Ok(Done { status, lines: lines.kept });
        }
        // Nothing of it may write any more when whoever asked cleans up.
        process.exited().await;
        Err(EnvironmentError::Timeout { step: step.to_owned(), after: patience, output: lines.kept })
    }

    fn next_id(&self) -> Result<WorkerId, SpawnError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The owner's name may be as long as a worker's may be.
        let owner: String = self.owner.chars().take(40).collect();
        WorkerId::new(format!("{owner}-errand-{number}"))
            .or_else(|_| WorkerId::new(format!("errand-{number}")))
            .map_err(|error| SpawnError::BadDescriptors(error.to_string()))
    }

    /// If nobody waits for the process when it is there, it is ended.
    async fn launch(
        &self,
        command: Command,
    ) -> Result<Result<custody::Worker, SpawnError>, EnvironmentError> {
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

struct EndOnDrop(custody::Worker);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if self.0.try_wait().is_none() {
            let _ = self.0.kill();
        }
    }
}

/// A pipe that can be read without waiting, and its other end twice: what is said on both streams keeps its order.
fn pipe_of_two() -> std::io::Result<(OwnedFd, [OwnedFd; 2])> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let again = writer.try_clone()?;
    Ok((reader, [writer, again]))
}

struct Lines<F> {
    kept: Vec<String>,
    partial: Vec<u8>,
    heard: F,
}

impl<F: FnMut(&str)> Lines<F> {
    /// Until nobody is left who could write.
    async fn read(&mut self, mut reader: pipe::Receiver) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = reader.read(&mut buffer).await {
            for &byte in &buffer[..read] {
                match byte {
                    // A line that is written again and again shows progress: each time counts.
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

/// Without colours and other commands to a terminal.
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
