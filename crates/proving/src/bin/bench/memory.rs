//! What keeper and shims weigh while 100 workers run.

use snakepit_proving::bench::machine::Weight;
use snakepit_proving::bench::{Report, Row, Samples, Target, Unit};

use crate::{Bench, Outcome, roles};

const WORKERS: usize = 100;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let run = roles::open("shim", &bench.scratch.join("memory"))?;
    let workers = (0..WORKERS).map(|_| run.spawn(roles::idle_worker())).collect::<Result<Vec<_>, _>>()?;
    let keeper = run.keeper_pid().ok_or("the keeper is gone")?;
    let keeper = Weight::of(keeper)?.pss;
    let shims =
        workers.iter().map(|worker| Ok(Weight::of(worker.shim_pid())?.pss)).collect::<Outcome<Samples>>()?;
    roles::stop(&run)?;
    for (what, ours, most) in
        [("keeper", std::iter::once(keeper).collect(), 1.5), ("shim (100 of them)", shims, 0.15)]
    {
        report.add(Row {
            what: format!("Pss of the {what}, with {WORKERS} workers"),
            unit: Unit::Mebibytes,
            ours: ours.into(),
            beside: None,
            target: Target::AtMost(most),
        });
    }
    Ok(())
}
