//! A stream of small items from one worker, in items per second.

use std::time::Instant;

use snakepit_bench::{BenchReport, BenchResult, Comparand, ReportRow, RowTarget, Unit};

use crate::CallBench;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::floor::pipelined_echo::MsgspecEcho;
use crate::peer::grpc::{self, GrpcServerKind};
use crate::turns::{by_turns, plain};

const ITEMS: usize = 50_000;
const FEW_ITEMS: usize = 2_000;

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    let python = &bench.python;
    let mut ours =
        engine::start(python, PoolShape { workers: 1, codec: Codec::Msgspec, over: CallTransport::Socket })?;
    let mut floor = MsgspecEcho::start(python, 1)?;
    let mut sync = grpc::counter(python, GrpcServerKind::Sync)?;
    let mut aio = grpc::counter(python, GrpcServerKind::Aio)?;
    let turns = vec![
        ours.as_mut().map(|it| timed(ITEMS, || it.stream(ITEMS))),
        floor.as_mut().map(|it| timed(ITEMS, || it.stream(ITEMS))),
        sync.as_mut().map(|it| timed(FEW_ITEMS, || it.stream(FEW_ITEMS))),
        aio.as_mut().map(|it| timed(FEW_ITEMS, || it.stream(FEW_ITEMS))),
    ];
    let values = by_turns::<f64>(turns, bench.effort.rounds(24))?;
    let names = ["msgspec frames, no library", "tonic ← grpcio sync", "tonic ← grpcio aio"];
    for (at, name) in names.into_iter().enumerate() {
        report.add(ReportRow {
            what: "stream of small items from one worker".to_owned(),
            unit: Unit::PerSecond,
            ours: plain(&values[0]),
            beside: Some(Comparand { name: name.to_owned(), side: plain(&values[at + 1]) }),
            target: if at == 0 {
                RowTarget::RatioAtLeast { full: 0.4, smoke: 0.02 }
            } else {
                RowTarget::None
            },
        });
    }
    Ok(())
}

/// Times a stream of `items` items and returns items per second.
fn timed<'a>(
    items: usize,
    mut stream: impl FnMut() -> BenchResult<()> + 'a,
) -> Box<dyn FnMut() -> BenchResult<f64> + 'a> {
    Box::new(move || {
        let began = Instant::now();
        stream()?;
        Ok(f64::from(items as u32) / began.elapsed().as_secs_f64())
    })
}
