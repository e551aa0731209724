//! Many calls in flight, in calls per second.

use snakepit_bench::{BenchReport, BenchResult, RowTarget};

use super::Participants;
use crate::CallBench;
use crate::participant::{Participant, WINDOW};
use crate::turns::{CallPace, HeadlineMetric, show_bytes};

/// The payload and the number of calls per turn.
struct PayloadSize {
    bytes: usize,
    fast: usize,
    slow: usize,
    rounds: usize,
}

const SIZES: [PayloadSize; 3] = [
    PayloadSize { bytes: 64, fast: 20_480, slow: 1_024, rounds: 24 },
    PayloadSize { bytes: 4 << 10, fast: 10_240, slow: 1_024, rounds: 12 },
    PayloadSize { bytes: 1 << 20, fast: 64, slow: 32, rounds: 12 },
];

/// The bytes in flight for each worker: as much as its socket takes without a reader.
const MOST_BYTES: usize = 2 << 20;

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    for workers in [1, 2] {
        let near = [Participant::MeasuredPool, Participant::MsgspecEcho, Participant::OursOverGrpc];
        let mut participants =
            Participants::start(bench, workers, near.into_iter().chain(Participant::PEERS))?;
        for size in &SIZES {
            let in_flight = (MOST_BYTES / size.bytes).clamp(1, WINDOW);
            let results = participants.play(bench.effort.rounds(size.rounds), |caller| {
                let calls = match caller.pace() {
                    CallPace::Fast => size.fast,
                    CallPace::Slow => size.slow,
                };
                caller.many(size.bytes, calls, in_flight)
            })?;
            let s = if workers == 1 { "" } else { "s" };
            let what =
                format!("{}, {in_flight} in flight for each of {workers} worker{s}", show_bytes(size.bytes));
            for theirs in [Participant::MsgspecEcho].into_iter().chain(Participant::PEERS) {
                let beside = (theirs.name(), results.of(theirs));
                let target = target(size.bytes, workers, theirs);
                report.add(HeadlineMetric::Throughput.row(
                    what.clone(),
                    results.of(Participant::MeasuredPool),
                    beside,
                    target,
                ));
            }
            // The same transport, plus everything that a pool adds.
            let same_way = match size.bytes {
                64 => RowTarget::RatioAtLeast { full: 0.9, smoke: 0.3 },
                _ => RowTarget::None,
            };
            let what = format!("{what}, both over gRPC");
            let beside = (Participant::GrpcSync.name(), results.of(Participant::GrpcSync));
            let ours = results.of(Participant::OursOverGrpc);
            report.add(HeadlineMetric::Throughput.row(what, ours, beside, same_way));
        }
    }
    Ok(())
}

fn target(bytes: usize, workers: usize, theirs: Participant) -> RowTarget {
    match (bytes, workers, theirs) {
        (64, 2, Participant::MsgspecEcho) => RowTarget::RatioAtLeast { full: 0.5, smoke: 0.01 },
        (4096, 2, Participant::MsgspecEcho) => RowTarget::RatioAtLeast { full: 0.4, smoke: 0.01 },
        (64, 2, Participant::GrpcSync | Participant::GrpcAio | Participant::Pool | Participant::Executor) => {
            RowTarget::RatioAtLeast { full: 10.0, smoke: 0.1 }
        }
        _ => RowTarget::None,
    }
}
