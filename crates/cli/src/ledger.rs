//! `snakepit ledger`: lists the recorded runs and whether they are alive.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{self, Pid, ProcessEntry, RunEntry, RunLife, Tier};

use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::options::{StateReportOptions, shown};
use crate::shared::output::report;
use crate::shared::output::table::{self, dash};

/// List the recorded runs and their processes.
#[derive(clap::Args)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    options: StateReportOptions,
}

pub(crate) fn run(args: &LedgerArgs) -> Result<u8, CliFailure> {
    let dir = args.options.state.resolve()?;
    let runs = custody::ledger(&dir).map_err(|error| CliFailure::state(&error))?;
    let report = LedgerJson { state_dir: shown(&dir), runs: runs.iter().map(RunJson::from).collect() };
    args.options.output.print(&report, || text(&dir, &runs));
    Ok(SUCCESS)
}

fn text(dir: &Path, runs: &[RunEntry]) -> String {
    if runs.is_empty() {
        return format!("No runs are recorded in {}.\n", dir.display());
    }
    let rows: Vec<_> = runs.iter().flat_map(rows).collect();
    let mut text = table::aligned(
        ["RUN", "HOST", "LIFE", "WORKER", "PID", "PGID", "TIER", "SPAWNED AT", "ALIVE"],
        &rows,
    );
    for run in runs {
        for trouble in &run.trouble {
            let _ = writeln!(text, "\n{}: {trouble}", run.run);
        }
    }
    if runs.iter().any(|run| life(run.life).0) {
        text.push_str("\n`snakepit cleanup` clears dead runs, and so does the next run that starts here.\n");
    }
    text
}

fn rows(run: &RunEntry) -> Vec<[String; 9]> {
    let row = |[worker, pid, group, tier, time, alive]: [String; 6]| {
        let host = number(run.host_pid.map(Pid::as_raw));
        [run.run.clone(), host, life(run.life).2.to_owned(), worker, pid, group, tier, time, alive]
    };
    if run.processes.is_empty() {
        let tier = run.tier.map_or("-", Tier::name).to_owned();
        let opened = run.opened_at.map_or_else(dash, |at| format!("(opened {})", table::local_time(at)));
        return vec![row([dash(), dash(), dash(), tier, opened, dash()])];
    }
    let cells = |process: &ProcessEntry| {
        [
            process.worker.to_string(),
            number(process.pid.map(Pid::as_raw)),
            number(process.pgid),
            process.tier.to_string(),
            table::local_time(process.spawned_at),
            alive(process).to_owned(),
        ]
    };
    run.processes.iter().map(|process| row(cells(process))).collect()
}

fn alive(process: &ProcessEntry) -> &'static str {
    match (process.at_gate, process.alive) {
        (true, true) => "yes, at the gate",
        (true, false) => "no, never started",
        (false, true) => "yes",
        (false, false) => "no",
    }
}

fn number(number: Option<i32>) -> String {
    number.map_or_else(dash, |number| number.to_string())
}

/// Returns whether a run is over, its life in JSON, and its life for people.
fn life(life: RunLife) -> (bool, &'static str, &'static str) {
    match life {
        RunLife::Live => (false, "live", "live"),
        RunLife::Dead => (true, "dead", "dead"),
        RunLife::OtherBoot => (true, "other_boot", "dead, before the last boot"),
        RunLife::OtherNamespace => (false, "other_namespace", "live, in another PID namespace"),
        RunLife::OtherNamespaceUnseen => {
            (false, "other_namespace_unseen", "unseen, in another PID namespace")
        }
        RunLife::OtherNamespaceOver => {
            (true, "other_namespace_over", "dead, of a PID namespace that is gone")
        }
        RunLife::Unreadable => (false, "unreadable", "unreadable"),
    }
}

#[derive(Serialize)]
struct LedgerJson {
    state_dir: String,
    runs: Vec<RunJson>,
}

report! {
    struct RunJson from entry: &RunEntry {
        run: String = entry.run.clone(),
        host_pid: Option<i32> = entry.host_pid.map(Pid::as_raw),
        keeper_pid: Option<i32> = entry.keeper_pid.map(Pid::as_raw),
        life: &'static str = life(entry.life).1,
        tier: Option<&'static str> = entry.tier.map(Tier::name),
        cgroup: Option<String> = entry.cgroup.as_deref().map(shown),
        opened_at: Option<String> = entry.opened_at.and_then(table::rfc3339),
        processes: Vec<ProcessJson> = entry.processes.iter().map(ProcessJson::from).collect(),
        trouble: Vec<String> = entry.trouble.clone(),
    }

    struct ProcessJson from process: &ProcessEntry {
        worker: String = process.worker.to_string(),
        pid: Option<i32> = process.pid.map(Pid::as_raw),
        pgid: Option<i32> = process.pgid,
        shim_pid: Option<i32> = process.shim_pid.map(Pid::as_raw),
        tier: &'static str = process.tier.name(),
        spawned_at: Option<String> = table::rfc3339(process.spawned_at),
        at_gate: bool = process.at_gate,
        alive: bool = process.alive,
    }
}
