//! The trial of a tier: a run with its own directory starts a program, waits for its end, and is stopped.
//!
//! System calls that work one by one do not prove that a worker starts: a seccomp filter may refuse one call among
//! many. So the trial starts a program in the same way as a worker.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::link::keeper_setup::KEEPER_FILE;
use crate::state::error_chain;
use crate::{
    Command, Containment, CustodyOptions, ExitStatus, OpenError, Run, RunId, SpawnError, Stdio, WorkerProcess,
};

/// How long the trial program, which does nothing, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The exit status of the keeper's program when it is started without arguments. The trial runs this program because it
/// is in every state directory, while a container image may contain no other program.
const STATUS: i32 = 2;

/// Checks whether workers can be started in this tier; if not, returns the step that failed and the reason.
pub(crate) fn run(containment: Containment) -> Result<(), String> {
    let dir = TrialDir::make()?;
    let config = CustodyOptions {
        containment,
        state_dir: Some(dir.0.clone()),
        cleanup_on_stop_timeout_ms: 0,
        reap_interval: Duration::ZERO,
        ..CustodyOptions::default()
    };
    let run = Run::open(config).map_err(|error| match error {
        // Leaves out the advice to run the doctor.
        OpenError::Tier { reason, .. } => reason,
        error => error_chain(&error),
    })?;
    let outcome = start(&run, &dir.0).and_then(|worker| watch(&worker));
    let report = run.stop();
    outcome?;
    match report.survivors.first() {
        None => Ok(()),
        Some(survivor) => Err(format!("the trial program could not be ended: {survivor}")),
    }
}

fn start(run: &Run, dir: &Path) -> Result<WorkerProcess, String> {
    let file = Command::new(dir.join(KEEPER_FILE));
    let mut started = run.spawn(quiet(file));
    if matches!(started, Err(SpawnError::NotFound { .. } | SpawnError::NotExecutable { .. })) {
        // Files in this directory may not be executed: the keeper itself was started from memory.
        if let Some(command) = from_memory() {
            started = run.spawn(quiet(command));
        }
    }
    started.map_err(|error| format!("the trial program could not be started: {}", error_chain(&error)))
}

fn quiet(command: Command) -> Command {
    command.env_clear().current_dir("/").stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null)
}

#[cfg(not(portable))]
fn from_memory() -> Option<Command> {
    crate::link::keeper_link::program().ok().map(|program| Command::new("/proc/self/fd/3").fd(program, 3))
}

#[cfg(portable)]
fn from_memory() -> Option<Command> {
    None
}

fn watch(worker: &WorkerProcess) -> Result<(), String> {
    match worker.wait_within(PATIENCE).map(|exit| exit.status) {
        Some(ExitStatus::Code(STATUS)) => Ok(()),
        Some(status) => Err(format!("the trial program ended with {status} instead of exit status {STATUS}")),
        None => Err(format!("the end of the trial program was not seen within {} s", PATIENCE.as_secs())),
    }
}

/// A private directory that is removed on drop.
struct TrialDir(PathBuf);

impl TrialDir {
    fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("snakepit-trial-{}", RunId::new()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("cannot make {} for the trial: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
