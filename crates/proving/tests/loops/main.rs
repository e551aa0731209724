//! Loops and evaluations in processes that are killed at every step, and ended by signals in every phase.
//!
//! `SNAKEPIT_FULL=1` makes two thousand kills of loops and two hundred restarts, `SNAKEPIT_QUICK=1` a few. Every step
//! is reached in either case.

mod kills;
mod reports;
mod restarts;
mod signals;

use std::path::Path;
use std::process::Command;

use snakepit_proving::{HostProcess, OpenAs};
use tempfile::TempDir;

/// A running program `proving-looper`.
struct LooperProcess(HostProcess);

impl LooperProcess {
    /// Starts the program with a fault, as `SNAKEPIT_LOOP_FAULT` names it.
    fn start(dir: &Path, words: &[&str], fault: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proving-looper"));
        // Some hosts panic on request. Resolving the names of a backtrace would take longer than everything else.
        command.args(words).env("RUST_BACKTRACE", "0").env("SNAKEPIT_STATE_DIR", dir.join("state"));
        if let Some(fault) = fault {
            command.env("SNAKEPIT_LOOP_FAULT", fault);
        }
        Self(HostProcess::start(command, &OpenAs::default()))
    }

    /// Returns all output until the process ends, and whether a kill ended it.
    fn life(dir: &Path, words: &[&str], fault: Option<&str>) -> (Vec<String>, bool) {
        let mut looper = Self::start(dir, words, fault);
        let lines = std::iter::from_fn(|| looper.0.hear()).map(|line| line.trim_end().to_owned()).collect();
        let ended = looper.0.wait();
        let was_killed = std::os::unix::process::ExitStatusExt::signal(&ended) == Some(libc::SIGKILL);
        assert!(was_killed || ended.success(), "{words:?} with {fault:?}: {ended:?}");
        (lines, was_killed)
    }
}

fn dir() -> TempDir {
    TempDir::new().expect("a directory")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Returns the path of the worker, wherever the test runs.
fn worker() -> String {
    format!("{}/tests/loops/worker.py", env!("CARGO_MANIFEST_DIR"))
}

/// Asserts that no run is left in the state directory: the last process has cleaned up after the killed ones.
fn assert_no_runs(dir: &Path) {
    let Ok(runs) = std::fs::read_dir(dir.join("state/runs")) else { return };
    let names = runs.map(|run| run.expect("a run").file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    assert!(left.is_empty(), "runs are left: {left:?}");
}
