//! From nothing to ready: 1, 10 and 100 workers.

use std::time::{Duration, Instant};

use snakepit_proving::bench::{Beside, Outcome, Report, Row, Target, Unit};

use crate::Bench;
use crate::floor::bare::{Bare, Interpreters};
use crate::ours::{self, Codec, Over, Shape};
use crate::peer::grpc::{self, Server, Servers};
use crate::peer::pools::PoolStart;
use crate::turns::{Start, Turn, by_turns, plain};

/// Workers, rounds.
const CROWDS: [(usize, usize); 3] = [(1, 40), (10, 12), (100, 5)];

/// Beyond this gRPC takes too long to be worth the wait.
const MOST_GRPC: usize = 10;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let python = &bench.python;
    let mut spawn = PoolStart::new(python, "spawn")?;
    let mut fork = PoolStart::new(python, "fork")?;
    for (workers, rounds) in CROWDS {
        let grpc: Turn<'_, f64> = match grpc::installed(python) {
            Ok(()) if workers <= MOST_GRPC => {
                turn(move || Ok(Servers::start(python, Server::Sync, workers)?.1))
            }
            Ok(()) => Start::Absent("not measured: too long".to_owned()),
            Err(why) => Start::Absent(why),
        };
        let turns = vec![
            start_ours(bench, workers)?,
            turn(move || Ok(Interpreters::start(python, Bare::WithSocket, workers)?.1)),
            turn(move || Ok(Interpreters::start(python, Bare::Barest, workers)?.1)),
            turn(|| spawn.start(workers)),
            turn(|| fork.start(workers)),
            grpc,
        ];
        let played = by_turns(turns, bench.rounds(rounds))?;
        let besides = [
            ("bare python3 that connects back", Target::RatioAtMost { full: 1.3, smoke: 4.0 }),
            ("python3 that imports nothing and writes one byte", Target::None),
            ("mp.Pool, spawned", Target::None),
            ("mp.Pool, forked", Target::None),
            ("grpcio sync servers", Target::None),
        ];
        for (at, (name, target)) in besides.into_iter().enumerate() {
            let s = if workers == 1 { "" } else { "s" };
            report.add(Row {
                what: format!("start until ready: {workers} worker{s}"),
                unit: Unit::Seconds,
                ours: plain(&played[0]),
                beside: Some(Beside { name: name.to_owned(), side: plain(&played[at + 1]) }),
                target,
            });
        }
    }
    Ok(())
}

fn turn<'a>(mut start: impl FnMut() -> Outcome<Duration> + 'a) -> Turn<'a, f64> {
    Start::Here(Box::new(move || Ok(start()?.as_secs_f64())))
}

/// Workers of an engine that runs, as when a pool grows; the SDK's compiled files are there from an earlier start.
/// The end of the workers is waited for, but not measured.
fn start_ours(bench: &Bench, workers: usize) -> Outcome<Turn<'_, f64>> {
    let pit = ours::start(&bench.python, Shape { workers: 1, codec: Codec::Auto, over: Over::Socket })?;
    Ok(pit.map(|mut pit| -> Box<dyn FnMut() -> Outcome<f64> + '_> {
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
