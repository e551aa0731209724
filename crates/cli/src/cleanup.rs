//! `snakepit cleanup`: clears what dead hosts left behind, and says what it killed.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{CleanupReport, Killed, ReapedRun};

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
    Ok(if is_clean(&report) { 0 } else { NOT_CLEAN })
}

fn is_clean(report: &CleanupReport) -> bool {
    report.runs.iter().all(|run| run.removed && run.survivors.is_empty())
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
    let killed = match run.killed.len() {
        0 => "nothing was left alive".to_owned(),
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
        trouble: Option<String>,
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
    let reaped = |run: &ReapedRun| Reaped {
        run: run.run.clone(),
        removed: run.removed,
        killed: run.killed.iter().map(gone).collect(),
        survivors: run.survivors.iter().map(Left::from).collect(),
        trouble: run.trouble.clone(),
    };
    say::json(&Cleanup {
        state_dir: dir.display().to_string(),
        clean: is_clean(report),
        runs: report.runs.iter().map(reaped).collect(),
    })
}
