//! The cost of a start beside other runs: `Run::open` in a state directory with one live run, and in one with many.

use std::path::Path;
use std::time::{Duration, Instant};

use snakepit_bench::{BenchReport, Comparand, ReportRow, RowTarget, SampleSet, Unit};

use crate::{BenchResult, CustodyBench, roles};

/// The number of live runs in the full state directory.
const MANY: usize = 500;

pub(crate) fn measure(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    let many = MANY.min(bench.most_workers());
    let (full, sparse) = (bench.scratch.join("open-full"), bench.scratch.join("open-sparse"));
    let mut live = vec![roles::open("shim", &sparse)?];
    for _ in 0..many {
        live.push(roles::open("shim", &full)?);
    }
    let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
    for _ in 0..bench.effort.rounds(60) {
        ours.push_time(open_once(&full)?);
        floor.push_time(open_once(&sparse)?);
    }
    live.iter().try_for_each(roles::stop)?;
    report.add(ReportRow {
        what: format!("Run::open beside {many} live runs, nothing dead"),
        unit: Unit::Seconds,
        ours: ours.into(),
        beside: Some(Comparand { name: "beside 1 live run".to_owned(), side: floor.into() }),
        target: RowTarget::RatioAtMost { full: 1.2, smoke: 20.0 },
    });
    Ok(())
}

fn open_once(state: &Path) -> BenchResult<Duration> {
    let began = Instant::now();
    let run = roles::open("shim", state)?;
    let took = began.elapsed();
    roles::stop(&run)?;
    Ok(took)
}
