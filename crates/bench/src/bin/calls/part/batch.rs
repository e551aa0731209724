//! Calls of a command that takes many at a time, beside the same calls of a command that takes one.

use snakepit_bench::{BenchReport, BenchResult, RowTarget};

use crate::CallBench;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::turns::{CallTimes, HeadlineMetric, MeasuredTurn, by_turns, show_bytes};

const BYTES: usize = 64;
const CALLS: usize = 20_480;
/// Twice as many as a batch holds: while the worker has one, the next one is gathered.
const IN_FLIGHT: usize = 64;
const SHAPES: [(usize, Codec, &str); 3] = [
    (1, Codec::Msgspec, "1 worker"),
    (1, Codec::Own, "1 worker without msgspec"),
    (2, Codec::Msgspec, "2 workers"),
];

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    for (workers, codec, name) in SHAPES {
        let shape = PoolShape { workers, codec, over: CallTransport::Socket };
        let mut together = engine::start(&bench.python, shape)?;
        let mut single = engine::start(&bench.python, shape)?;
        let together: MeasuredTurn<'_, CallTimes> =
            together.as_mut().map(|it| -> Box<dyn FnMut() -> BenchResult<CallTimes> + '_> {
                Box::new(move || it.together(BYTES, CALLS, IN_FLIGHT))
            });
        let single: MeasuredTurn<'_, CallTimes> =
            single.as_mut().map(|it| -> Box<dyn FnMut() -> BenchResult<CallTimes> + '_> {
                Box::new(move || it.many(BYTES, CALLS, IN_FLIGHT))
            });
        let values = by_turns(vec![together, single], bench.effort.rounds(24))?;
        report.add(HeadlineMetric::Throughput.row(
            format!("{}, {IN_FLIGHT} in flight for each of {name}, in batches of 32", show_bytes(BYTES)),
            &values[0],
            ("the same calls, one by one", &values[1]),
            RowTarget::RatioAtLeast { full: 3.0, smoke: 0.3 },
        ));
    }
    Ok(())
}
