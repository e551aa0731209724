//! The start of 1, 10 and 100 workers, until all of them are ready.

use std::time::{Duration, Instant};

use snakepit_bench::{BenchReport, BenchResult, Comparand, ReportRow, RowTarget, Unit};

use crate::CallBench;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::floor::interpreter::{BareInterpreters, InterpreterKind};
use crate::peer::grpc::{self, GrpcServerKind, GrpcServers};
use crate::peer::pools::PoolStart;
use crate::turns::{Availability, MeasuredTurn, by_turns, plain};

/// Workers, rounds.
const WORKER_COUNTS: [(usize, usize); 3] = [(1, 40), (10, 12), (100, 5)];

/// With more workers than this, starting gRPC servers takes too long to be worth measuring.
const MOST_GRPC: usize = 10;

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    let python = &bench.python;
    let mut spawn = PoolStart::new(python, "spawn")?;
    let mut fork = PoolStart::new(python, "fork")?;
    for (workers, rounds) in WORKER_COUNTS {
        let grpc: MeasuredTurn<'_, f64> = match grpc::installed(python) {
            Ok(()) if workers <= MOST_GRPC => {
                turn(move || Ok(GrpcServers::start(python, GrpcServerKind::Sync, workers)?.1))
            }
            Ok(()) => Availability::Absent("not measured: too long".to_owned()),
            Err(why) => Availability::Absent(why),
        };
        let turns = vec![
            start_ours(bench, workers)?,
            turn(move || Ok(BareInterpreters::start(python, InterpreterKind::WithSocket, workers)?.1)),
            turn(move || Ok(BareInterpreters::start(python, InterpreterKind::Barest, workers)?.1)),
            turn(|| spawn.start(workers)),
            turn(|| fork.start(workers)),
            grpc,
        ];
        let values = by_turns(turns, bench.effort.rounds(rounds))?;
        let besides = [
            ("bare python3 that connects back", RowTarget::RatioAtMost { full: 1.3, smoke: 4.0 }),
            ("python3 that imports nothing and writes one byte", RowTarget::None),
            ("mp.Pool, spawned", RowTarget::None),
            ("mp.Pool, forked", RowTarget::None),
            ("grpcio sync servers", RowTarget::None),
        ];
        for (at, (name, target)) in besides.into_iter().enumerate() {
            let s = if workers == 1 { "" } else { "s" };
            report.add(ReportRow {
                what: format!("start until ready: {workers} worker{s}"),
                unit: Unit::Seconds,
                ours: plain(&values[0]),
                beside: Some(Comparand { name: name.to_owned(), side: plain(&values[at + 1]) }),
                target,
            });
        }
    }
    Ok(())
}

fn turn<'a>(mut start: impl FnMut() -> BenchResult<Duration> + 'a) -> MeasuredTurn<'a, f64> {
    Availability::Available(Box::new(move || Ok(start()?.as_secs_f64())))
}

/// Starts workers in an engine that already runs, as when a pool grows. An earlier start has compiled the SDK's files.
/// The turn waits for the workers' end, but does not measure it.
fn start_ours(bench: &CallBench, workers: usize) -> BenchResult<MeasuredTurn<'_, f64>> {
    let pit = engine::start(
        &bench.python,
        PoolShape { workers: 1, codec: Codec::Auto, over: CallTransport::Socket },
    )?;
    Ok(pit.map(|mut pit| -> Box<dyn FnMut() -> BenchResult<f64> + '_> {
        Box::new(move || {
            pit.scale(0)?;
            let began = Instant::now();
            pit.scale(workers)?;
            let took = began.elapsed();
            pit.scale(0)?;
            Ok(took.as_secs_f64())
        })
    }))
}
