//! What keeper and shims weigh while 100 workers run.

use std::fs;

use crate::report::{Report, Row, Target, Unit};
use crate::sample::Samples;
use crate::{Bench, Outcome, roles};

const WORKERS: usize = 100;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let run = roles::open("shim", &bench.scratch.join("memory"))?;
    let workers = (0..WORKERS).map(|_| run.spawn(roles::idle_worker())).collect::<Result<Vec<_>, _>>()?;
    let keeper = run.keeper_pid().ok_or("the keeper is gone")?;
    let keeper = pss(&keeper.to_string())?;
    let shims =
        workers.iter().map(|worker| pss(&worker.shim_pid().to_string())).collect::<Outcome<Samples>>()?;
    roles::stop(&run)?;
    for (what, ours, most) in
        [("keeper", std::iter::once(keeper).collect(), 1.5), ("shim (100 of them)", shims, 0.15)]
    {
        report.add(Row {
            what: format!("Pss of the {what}, with {WORKERS} workers"),
            unit: Unit::Mebibytes,
            ours,
            floor: None,
            target: Target::AtMost(most),
        });
    }
    Ok(())
}

/// Proportional set size in MiB.
fn pss(pid: &str) -> Outcome<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}
