//! A stream of small items from one worker: how many a second.

use std::time::Instant;

use snakepit_proving::bench::{Beside, Outcome, Report, Row, Target, Unit};

use crate::Bench;
use crate::floor::msgspec::MsgspecEcho;
use crate::ours::{self, Codec, Over, Shape};
use crate::peer::grpc::{self, Server};
use crate::turns::{by_turns, plain};

const ITEMS: usize = 50_000;
const FEW_ITEMS: usize = 2_000;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let python = &bench.python;
    let mut ours = ours::start(python, Shape { workers: 1, codec: Codec::Msgspec, over: Over::Socket })?;
    let mut floor = MsgspecEcho::start(python, 1)?;
    let mut sync = grpc::counter(python, Server::Sync)?;
    let mut aio = grpc::counter(python, Server::Aio)?;
    let turns = vec![
        ours.as_mut().map(|it| timed(ITEMS, || it.stream(ITEMS))),
        floor.as_mut().map(|it| timed(ITEMS, || it.stream(ITEMS))),
        sync.as_mut().map(|it| timed(FEW_ITEMS, || it.stream(FEW_ITEMS))),
        aio.as_mut().map(|it| timed(FEW_ITEMS, || it.stream(FEW_ITEMS))),
    ];
    let played = by_turns::<f64>(turns, bench.rounds(24))?;
    let names = ["msgspec frames, no library", "tonic ← grpcio sync", "tonic ← grpcio aio"];
    for (at, name) in names.into_iter().enumerate() {
        report.add(Row {
            what: "stream of small items from one worker".to_owned(),
            unit: Unit::PerSecond,
            ours: plain(&played[0]),
            beside: Some(Beside { name: name.to_owned(), side: plain(&played[at + 1]) }),
            target: if at == 0 { Target::AtLeast { full: 200_000.0, smoke: 20_000.0 } } else { Target::None },
        });
    }
    Ok(())
}

/// So many items, as items a second.
fn timed<'a>(
    items: usize,
    mut stream: impl FnMut() -> Outcome<()> + 'a,
) -> Box<dyn FnMut() -> Outcome<f64> + 'a> {
    Box::new(move || {
        let began = Instant::now();
        stream()?;
        Ok(f64::from(items as u32) / began.elapsed().as_secs_f64())
    })
}
