//! Many calls in flight: how many a second.

use snakepit_proving::bench::{Outcome, Report, Target};

use super::Cast;
use crate::Bench;
use crate::turns::{Headline, Pace, show_bytes};
use crate::who::{WINDOW, Who};

/// What a turn is made of.
struct Size {
    bytes: usize,
    fast: usize,
    slow: usize,
    rounds: usize,
}

const SIZES: [Size; 3] = [
    Size { bytes: 64, fast: 20_480, slow: 1_024, rounds: 24 },
    Size { bytes: 4 << 10, fast: 10_240, slow: 1_024, rounds: 12 },
    Size { bytes: 1 << 20, fast: 64, slow: 32, rounds: 12 },
];

/// What a worker may hold of large calls: as much as its socket takes without anybody reading.
const MOST_BYTES: usize = 2 << 20;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    for workers in [1, 2] {
        let near = [Who::Ours, Who::MsgspecEcho, Who::OursOverGrpc, Who::OursOverStdio, Who::OursOverHttp];
        let mut cast = Cast::start(bench, workers, near.into_iter().chain(Who::PEERS))?;
        for size in &SIZES {
            let in_flight = (MOST_BYTES / size.bytes).clamp(1, WINDOW);
            let scores = cast.play(bench.rounds(size.rounds), |caller| {
                let calls = match caller.pace() {
                    Pace::Fast => size.fast,
                    Pace::Slow => size.slow,
                };
                caller.many(size.bytes, calls, in_flight)
            })?;
            let s = if workers == 1 { "" } else { "s" };
            let what =
                format!("{}, {in_flight} in flight for each of {workers} worker{s}", show_bytes(size.bytes));
            for theirs in [Who::MsgspecEcho].into_iter().chain(Who::PEERS) {
                let beside = (theirs.name(), scores.of(theirs));
                let target = target(size.bytes, workers, theirs);
                report.add(Headline::Throughput.row(what.clone(), scores.of(Who::Ours), beside, target));
            }
            // The same way, with all that a pool does besides.
            let same_way = match size.bytes {
                64 => Target::RatioAtLeast { full: 0.9, smoke: 0.3 },
                _ => Target::None,
            };
            for (way, ours, theirs, target) in [
                ("both over gRPC", Who::OursOverGrpc, Who::GrpcSync, same_way),
                ("over stdio", Who::OursOverStdio, Who::MsgspecEcho, Target::None),
                ("both over HTTP", Who::OursOverHttp, Who::Mosec, Target::None),
            ] {
                let (what, beside) = (format!("{what}, {way}"), (theirs.name(), scores.of(theirs)));
                report.add(Headline::Throughput.row(what, scores.of(ours), beside, target));
            }
        }
    }
    Ok(())
}

fn target(bytes: usize, workers: usize, theirs: Who) -> Target {
    match (bytes, workers, theirs) {
        (64, 2, Who::MsgspecEcho) => Target::RatioAtLeast { full: 0.3, smoke: 0.01 },
        (64, 2, Who::GrpcSync | Who::GrpcAio | Who::Pool | Who::Executor) => {
            Target::RatioAtLeast { full: 10.0, smoke: 0.1 }
        }
        _ => Target::None,
    }
}
