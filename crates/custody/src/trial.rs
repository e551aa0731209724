//! A tier tried for real: a run with a directory of its own starts a program, sees its end, and is stopped.
//!
//! What is only probed call by call can look well where nothing starts, as under a filter that refuses one call
//! among many. So this takes the way that every worker takes.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::reaper::error_chain;
use crate::{Command, Config, Containment, ExitStatus, OpenError, Run, RunId, SpawnError, Stdio, Worker};

/// How long the program may take, which does nothing at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// The keeper's program ends with this status when it is started without arguments. It is in every state directory, and
/// an image need not have any other.
const STATUS: i32 = 2;

/// Whether workers can be had this way, or which step failed and why.
pub(crate) fn run(containment: Containment) -> Result<(), String> {
    let dir = Dir::make()?;
    let config = Config {
        containment,
        state_dir: Some(dir.0.clone()),
        cleanup_on_stop_timeout_ms: 0,
        reap_interval: Duration::ZERO,
        ..Config::default()
    };
    let run = Run::open(config).map_err(|error| match error {
        // Whoever asks for trials needs no advice to ask for them.
        OpenError::Tier { reason, .. } => reason,
        error => error_chain(&error),
    })?;
    let outcome = start(&run, &dir.0).and_then(|worker| watch(&worker));
    let report = run.stop();
    outcome?;
    match report.survivors.first() {
        None => Ok(()),
        Some(survivor) => Err(format!("a program was started and could not be ended: {survivor}")),
    }
}

fn start(run: &Run, dir: &Path) -> Result<Worker, String> {
    let file = Command::new(dir.join(concat!("keeper-", env!("SNAKEPIT_KEEPER_HASH"))));
    let mut started = run.spawn(quiet(file));
    if matches!(started, Err(SpawnError::NotFound { .. } | SpawnError::NotExecutable { .. })) {
        // Nothing may be executed there; then the keeper itself was started from memory.
        if let Some(command) = from_memory() {
            started = run.spawn(quiet(command));
        }
    }
    started.map_err(|error| format!("a program could not be started: {}", error_chain(&error)))
}

fn quiet(command: Command) -> Command {
    command.env_clear().current_dir("/").stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null)
}

#[cfg(not(portable))]
fn from_memory() -> Option<Command> {
    crate::link::program().ok().map(|program| Command::new("/proc/self/fd/3").fd(program, 3))
}

#[cfg(portable)]
fn from_memory() -> Option<Command> {
    None
}

fn watch(worker: &Worker) -> Result<(), String> {
    match worker.wait_within(PATIENCE).map(|exit| exit.status) {
        Some(ExitStatus::Code(STATUS)) => Ok(()),
        Some(status) => Err(format!("a program was started and ended with {status} instead of its own")),
        None => {
            Err(format!("a program was started and its end was not seen within {} s", PATIENCE.as_secs()))
        }
    }
}

/// A private directory, removed in the end.
struct Dir(PathBuf);

impl Dir {
    fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("snakepit-trial-{}", RunId::new()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            format!("the trial needs a directory, and cannot make {}: {error}", path.display())
        })?;
        Ok(Self(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
