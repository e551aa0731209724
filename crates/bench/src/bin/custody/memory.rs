//! The memory of keeper and shims while 100 workers run.

use snakepit_bench::{BenchReport, ProcessMemory, ReportRow, RowTarget, SampleSet, Unit};

use crate::{BenchResult, CustodyBench, roles};

const WORKERS: usize = 100;

pub(crate) fn measure(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    let run = roles::open("shim", &bench.scratch.join("memory"))?;
    let workers = (0..WORKERS).map(|_| run.spawn(roles::idle_worker())).collect::<Result<Vec<_>, _>>()?;
    let keeper = run.keeper_pid().ok_or("the keeper is gone")?;
    let keeper = ProcessMemory::of(keeper)?.pss;
    let shims = workers
        .iter()
        .map(|worker| Ok(ProcessMemory::of(worker.shim_pid())?.pss))
        .collect::<BenchResult<SampleSet>>()?;
    roles::stop(&run)?;
    for (what, ours, most) in
        [("keeper", std::iter::once(keeper).collect(), 1.5), ("shim (100 of them)", shims, 0.15)]
    {
        report.add(ReportRow {
            what: format!("Pss of the {what}, with {WORKERS} workers"),
            unit: Unit::Mebibytes,
            ours: ours.into(),
            beside: None,
            target: RowTarget::AtMost(most),
        });
    }
    Ok(())
}
