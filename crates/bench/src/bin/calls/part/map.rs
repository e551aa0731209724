//! Many tiny calls in bulk on two workers.

use std::time::Instant;

use snakepit_bench::{BenchReport, BenchResult, Comparand, ReportRow, RowTarget, Unit};

use crate::CallBench;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::peer::pools::PythonPoolHost;
use crate::turns::{Availability, MeasuredTurn, by_turns, plain};

const CALLS: usize = 100_000;
const CHUNK: usize = 100;

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    let python = &bench.python;
    let mut ours =
        engine::start(python, PoolShape { workers: 2, codec: Codec::Msgspec, over: CallTransport::Socket })?;
    let mut executor = PythonPoolHost::start(python, "executor", 2)?;
    let mut pool = PythonPoolHost::start(python, "pool", 2)?;
    let rate = |seconds: f64| f64::from(CALLS as u32) / seconds;
    let ours: MeasuredTurn<'_, f64> = ours.as_mut().map(|it| -> Box<dyn FnMut() -> BenchResult<f64> + '_> {
        Box::new(move || {
            let began = Instant::now();
            it.map(CALLS)?;
            Ok(rate(began.elapsed().as_secs_f64()))
        })
    });
    let turns = vec![
        ours,
        Availability::Available(Box::new(|| Ok(rate(executor.map(CALLS, CHUNK)?.as_secs_f64())))),
        Availability::Available(Box::new(|| Ok(rate(pool.map(CALLS, CHUNK)?.as_secs_f64())))),
    ];
    let values = by_turns::<f64>(turns, bench.effort.rounds(12))?;
    let targets = [
        ("ProcessPoolExecutor.map(chunksize=100)", RowTarget::RatioAtLeast { full: 1.0, smoke: 0.03 }),
        ("mp.Pool.map(chunksize=100)", RowTarget::RatioAtLeast { full: 1.0, smoke: 0.03 }),
    ];
    for (at, (name, target)) in targets.into_iter().enumerate() {
        report.add(ReportRow {
            what: format!("map of {CALLS} tiny calls over 2 workers"),
            unit: Unit::PerSecond,
            ours: plain(&values[0]),
            beside: Some(Comparand { name: name.to_owned(), side: plain(&values[at + 1]) }),
            target,
        });
    }
    Ok(())
}
