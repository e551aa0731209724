//! `snakepit ledger`: what is recorded, and whether it lives.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{ProcessEntry, RunEntry, RunLife};

use crate::Common;
use crate::say::{self, Failure};
use crate::table;

/// List the recorded runs and their processes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let dir = args.common.state_dir()?;
    let runs = snakepit::custody::ledger(&dir).map_err(|error| crate::cannot_use_state(&error))?;
    say::out(&if args.common.json { json(&dir, &runs) } else { text(&dir, &runs) });
    Ok(0)
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
    if runs.iter().any(|run| is_over(run.life)) {
        text.push_str(
            "\nDead runs are cleared by `snakepit cleanup`, and by the next run that starts here.\n",
        );
    }
    text
}

fn rows(run: &RunEntry) -> Vec<[String; 9]> {
    let host = number(run.host_pid.map(snakepit::custody::Pid::as_raw));
    let life = life(run.life).to_owned();
    if run.processes.is_empty() {
        let tier = run.tier.map_or("-", snakepit::custody::Tier::name);
        let [none, no_pid, no_group, not_alive] = ["-"; 4].map(str::to_owned);
        let opened = run.opened_at.map_or("-".to_owned(), |at| format!("(opened {})", table::local_time(at)));
        return vec![[
            run.run.clone(),
            host,
            life,
            none,
            no_pid,
            no_group,
            tier.to_owned(),
            opened,
            not_alive,
        ]];
    }
    let row = |process: &ProcessEntry| {
        [
            run.run.clone(),
            host.clone(),
            life.clone(),
            process.worker.to_string(),
            number(process.pid.map(snakepit::custody::Pid::as_raw)),
            number(process.pgid),
            process.tier.to_string(),
            table::local_time(process.spawned_at),
            alive(process).to_owned(),
        ]
    };
    run.processes.iter().map(row).collect()
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
    number.map_or("-".to_owned(), |number| number.to_string())
}

fn is_over(life: RunLife) -> bool {
    match life {
        RunLife::Dead | RunLife::OtherBoot | RunLife::OtherNamespaceOver => true,
        RunLife::Live | RunLife::OtherNamespace | RunLife::OtherNamespaceUnseen | RunLife::Unreadable => {
            false
        }
    }
}

fn life(life: RunLife) -> &'static str {
    match life {
        RunLife::Live => "live",
        RunLife::Dead => "dead",
        RunLife::OtherBoot => "dead, before the last boot",
        RunLife::OtherNamespace => "live, in another PID namespace",
        RunLife::OtherNamespaceUnseen => "unseen, in another PID namespace",
        RunLife::OtherNamespaceOver => "dead, of a PID namespace that is gone",
        RunLife::Unreadable => "unreadable",
    }
}

fn json(dir: &Path, runs: &[RunEntry]) -> String {
    #[derive(Serialize)]
    struct Ledger {
        state_dir: String,
        runs: Vec<Record>,
    }
    #[derive(Serialize)]
    struct Record {
        run: String,
        host_pid: Option<i32>,
        keeper_pid: Option<i32>,
        life: &'static str,
        tier: Option<&'static str>,
        cgroup: Option<String>,
        opened_at: Option<String>,
        processes: Vec<Process>,
        trouble: Vec<String>,
    }
    #[derive(Serialize)]
    struct Process {
        worker: String,
        pid: Option<i32>,
        pgid: Option<i32>,
        shim_pid: Option<i32>,
        tier: &'static str,
        spawned_at: Option<String>,
        at_gate: bool,
        alive: bool,
    }
    let process = |process: &ProcessEntry| Process {
        worker: process.worker.to_string(),
        pid: process.pid.map(snakepit::custody::Pid::as_raw),
        pgid: process.pgid,
        shim_pid: process.shim_pid.map(snakepit::custody::Pid::as_raw),
        tier: process.tier.name(),
        spawned_at: table::rfc3339(process.spawned_at),
        at_gate: process.at_gate,
        alive: process.alive,
    };
    let record = |run: &RunEntry| Record {
        run: run.run.clone(),
        host_pid: run.host_pid.map(snakepit::custody::Pid::as_raw),
        keeper_pid: run.keeper_pid.map(snakepit::custody::Pid::as_raw),
        life: match run.life {
            RunLife::Live => "live",
            RunLife::Dead => "dead",
            RunLife::OtherBoot => "other_boot",
            RunLife::OtherNamespace => "other_namespace",
            RunLife::OtherNamespaceUnseen => "other_namespace_unseen",
            RunLife::OtherNamespaceOver => "other_namespace_over",
            RunLife::Unreadable => "unreadable",
        },
        tier: run.tier.map(snakepit::custody::Tier::name),
        cgroup: run.cgroup.as_ref().map(|path| path.display().to_string()),
        opened_at: run.opened_at.and_then(table::rfc3339),
        processes: run.processes.iter().map(process).collect(),
        trouble: run.trouble.clone(),
    };
    say::json(&Ledger { state_dir: dir.display().to_string(), runs: runs.iter().map(record).collect() })
}
