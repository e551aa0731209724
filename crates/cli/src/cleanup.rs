//! `snakepit cleanup`: clears what dead hosts left behind and reports what it killed.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{CleanupReport, Killed, LetBe, ReapedRun};

use crate::exec::SurvivorReport;
use crate::shared::exit_status::{FAILED, SUCCESS};
use crate::shared::failure::CliFailure;
use crate::shared::options::{StateReportOptions, shown};
use crate::shared::output::report;

/// Kill what the runs of dead hosts left behind, and remove their records. Live runs are not touched.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when all is clean, 1 when something survived or could not be cleared,\n\
                  125 when the state directory cannot be used."
)]
pub(crate) struct CleanupArgs {
    #[command(flatten)]
    options: StateReportOptions,
}

pub(crate) fn run(args: &CleanupArgs) -> Result<u8, CliFailure> {
    let dir = args.options.state.resolve()?;
    let report = snakepit::custody::cleanup(&dir).map_err(|error| CliFailure::state(&error))?;
    let runs = report.runs.iter().map(ReapedRunJson::from).collect();
    let json = CleanupJson { state_dir: shown(&dir), clean: report.is_clean(), runs };
    args.options.output.print(&json, || text(&dir, &report));
    Ok(if report.is_clean() { SUCCESS } else { FAILED })
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
        for left in run.survivors.iter().map(SurvivorReport::from) {
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
            "Survivors stay recorded; run this again once the kernel has finished what they wait for.\n",
        );
    }
    text
}

fn summary(run: &ReapedRun) -> String {
    let in_doubt = run.let_be.iter().any(|let_be| let_be.reason.is_doubt());
    let killed = match run.killed.len() {
        0 if run.removed => "nothing was left alive".to_owned(),
        0 if in_doubt || !run.survivors.is_empty() => "nothing was killed".to_owned(),
        0 => "nothing was touched".to_owned(),
        1 => "killed 1 process".to_owned(),
        n => format!("killed {n} processes"),
    };
    let removed = if run.removed { "its record is removed" } else { "its record stays" };
    format!("{killed}, {removed}")
}

fn of_worker(killed: &Killed) -> String {
    killed.worker.as_ref().map_or(String::new(), |worker| format!(" of {worker}"))
}

#[derive(Serialize)]
struct CleanupJson {
    state_dir: String,
    clean: bool,
    runs: Vec<ReapedRunJson>,
}

report! {
    struct ReapedRunJson from reaped: &ReapedRun {
        run: String = reaped.run.clone(),
        removed: bool = reaped.removed,
        killed: Vec<KilledJson> = reaped.killed.iter().map(KilledJson::from).collect(),
        survivors: Vec<SurvivorReport> = reaped.survivors.iter().map(SurvivorReport::from).collect(),
        let_be: Vec<LetBeJson> = reaped.let_be.iter().map(LetBeJson::from).collect(),
        trouble: Option<String> = reaped.trouble.clone(),
    }

    struct KilledJson from killed: &Killed {
        pid: i32 = killed.pid.as_raw(),
        worker: Option<String> = killed.worker.as_ref().map(ToString::to_string),
        command: String = killed.command.clone(),
    }

    struct LetBeJson from let_be: &LetBe {
        pid: i32 = let_be.pid.as_raw(),
        command: String = let_be.command.clone(),
        reason: String = let_be.reason.to_string(),
        may_be_of_the_run: bool = let_be.reason.is_doubt(),
    }
}
