//! Many tiny calls in bulk, over two workers.

use std::time::Instant;

use snakepit_proving::bench::{Beside, Outcome, Report, Row, Target, Unit};

use crate::Bench;
use crate::ours::{self, Codec, Over, Shape};
use crate::peer::pools::Host;
use crate::turns::{Start, Turn, by_turns, plain};

const CALLS: usize = 100_000;
const CHUNK: usize = 100;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let python = &bench.python;
    let mut ours = ours::start(python, Shape { workers: 2, codec: Codec::Msgspec, over: Over::Socket })?;
    let mut executor = Host::start(python, "executor", 2)?;
    let mut pool = Host::start(python, "pool", 2)?;
    let rate = |seconds: f64| f64::from(CALLS as u32) / seconds;
    let ours: Turn<'_, f64> = ours.as_mut().map(|it| -> Box<dyn FnMut() -> Outcome<f64> + '_> {
        Box::new(move || {
            let began = Instant::now();
            it.map(CALLS)?;
            Ok(rate(began.elapsed().as_secs_f64()))
        })
    });
    let turns = vec![
        ours,
        Start::Here(Box::new(|| Ok(rate(executor.map(CALLS, CHUNK)?.as_secs_f64())))),
        Start::Here(Box::new(|| Ok(rate(pool.map(CALLS, CHUNK)?.as_secs_f64())))),
    ];
    let played = by_turns::<f64>(turns, bench.rounds(12))?;
    let targets = [
        ("ProcessPoolExecutor.map(chunksize=100)", Target::RatioAtLeast { full: 1.0, smoke: 0.03 }),
        ("mp.Pool.map(chunksize=100)", Target::None),
    ];
    for (at, (name, target)) in targets.into_iter().enumerate() {
        report.add(Row {
            what: format!("map of {CALLS} tiny calls over 2 workers"),
            unit: Unit::PerSecond,
            ours: plain(&played[0]),
            beside: Some(Beside { name: name.to_owned(), side: plain(&played[at + 1]) }),
            target,
        });
    }
    Ok(())
}
