//! `snakepit cleanup`: clears what dead hosts left behind, and says what it killed.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{CleanupReport, Killed, LetBe, ReapedRun};

use crate::Common;
use crate::exec::Left;
use crate::say::{self, Failure};

/// Kill and forget what the runs of dead hosts left behind; live runs are not touched.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when all is clean, 1 when something survived or could not be cleared, 125 when \
                        the state directory cannot be used."
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Something survived.
const NOT_CLEAN: u8 = 1;

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let dir = args.common.state_dir()?;
    let report = snakepit::custody::cleanup(&dir).map_err(|error| crate::cannot_use_state(&error))?;
    say::out(&if args.common.json { json(&dir, &report) } else { text(&dir, &report) });
    Ok(if report.is_clean() { 0 } else { NOT_CLEAN })
}

fn text(dir: &Path, report: &CleanupReport) -> String {
    if report.runs.is_empty() {
        return format!("Nothing to clean: no dead run is recorded in {}.\n", dir.display());
    }
    let mut text = String::new();
    for run in &report.runs {
        let _ = writeln!(text, "{}: {}", run.run, summary(run));
        for killed in &run.killed {
            let _ = writeln!(text, "  killed pid {}{}: {}", killed.pid, of_worker(killed), killed.command);
        }
        for left in run.survivors.iter().map(Left::from) {
            let _ = writeln!(text, "  survived: {}", left.describe());
        }
        for let_be in &run.let_be {
            let _ = writeln!(text, "  {let_be}");
        }
        if let Some(trouble) = &run.trouble {
            let _ = writeln!(text, "  {trouble}");
        }
    }
    if report.runs.iter().any(|run| !run.survivors.is_empty()) {
        text.push_str(
            "Survivors stay recorded; run this again once the kernel lets go of what they wait for.\n",
        );
    }
    text
}

fn summary(run: &ReapedRun) -> String {
    let in_doubt = run.let_be.iter().any(|let_be| let_be.reason.is_doubt());
    let killed = match run.killed.len() {
        // Only if that was seen.
        0 if run.removed => "nothing was left alive".to_owned(),
        0 if in_doubt || !run.survivors.is_empty() => "nothing was killed".to_owned(),
        0 => "it was let be".to_owned(),
        1 => "killed 1 process".to_owned(),
        n => format!("killed {n} processes"),
    };
    let removed = if run.removed { "its record is removed" } else { "its record stays" };
    format!("{killed}, {removed}")
}

fn of_worker(killed: &Killed) -> String {
    killed.worker.as_ref().map_or(String::new(), |worker| format!(" of {worker}"))
}

fn json(dir: &Path, report: &CleanupReport) -> String {
    #[derive(Serialize)]
    struct Cleanup {
        state_dir: String,
        clean: bool,
        runs: Vec<Reaped>,
    }
    #[derive(Serialize)]
    struct Reaped {
        run: String,
        removed: bool,
        killed: Vec<Gone>,
        survivors: Vec<Left>,
        let_be: Vec<Untouched>,
        trouble: Option<String>,
    }
    #[derive(Serialize)]
    struct Untouched {
        pid: i32,
        command: String,
        reason: String,
        may_be_of_the_run: bool,
    }
    #[derive(Serialize)]
    struct Gone {
        pid: i32,
        worker: Option<String>,
        command: String,
    }
    let gone = |killed: &Killed| Gone {
        pid: killed.pid.as_raw(),
        worker: killed.worker.as_ref().map(ToString::to_string),
        command: killed.command.clone(),
    };
    let untouched = |let_be: &LetBe| Untouched {
        pid: let_be.pid.as_raw(),
        command: let_be.command.clone(),
        reason: let_be.reason.to_string(),
        may_be_of_the_run: let_be.reason.is_doubt(),
    };
    let reaped = |run: &ReapedRun| Reaped {
        run: run.run.clone(),
        removed: run.removed,
        killed: run.killed.iter().map(gone).collect(),
        survivors: run.survivors.iter().map(Left::from).collect(),
        let_be: run.let_be.iter().map(untouched).collect(),
        trouble: run.trouble.clone(),
    };
    say::json(&Cleanup {
        state_dir: dir.display().to_string(),
        clean: report.is_clean(),
        runs: report.runs.iter().map(reaped).collect(),
    })
}
