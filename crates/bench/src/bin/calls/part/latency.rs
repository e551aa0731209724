//! The latency with one call in flight.

use snakepit_bench::{BenchReport, BenchResult, RowTarget};

use super::{Participants, TurnResults};
use crate::CallBench;
use crate::participant::Participant;
use crate::turns::{HeadlineMetric, show_bytes};

/// Bytes, calls per turn, rounds.
const SIZES: [(usize, usize, usize); 3] = [(64, 200, 48), (4 << 10, 200, 24), (1 << 20, 24, 24)];

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    let near = [
        Participant::MeasuredPool,
        Participant::OursBlocking,
        Participant::RawEcho,
        Participant::AwaitedEcho,
        Participant::OursOwnCodec,
        Participant::OursOnOneCore,
        Participant::RawEchoOnOneCore,
        Participant::OursOnTwoCores,
        Participant::RawEchoOnTwoCores,
        Participant::OursOverGrpc,
    ];
    let mut participants = Participants::start(bench, 1, near.into_iter().chain(Participant::PEERS))?;
    for (bytes, calls, rounds) in SIZES {
        let results = participants.play(bench.effort.rounds(rounds), |caller| caller.one(bytes, calls))?;
        rows(report, bytes, &results);
    }
    Ok(())
}

fn rows(report: &mut BenchReport, bytes: usize, results: &TurnResults) {
    let size = show_bytes(bytes);
    let mut add = |what: &str, ours: Participant, theirs: Participant, target: RowTarget| {
        let what = format!("{size}, one in flight, 1 worker{what}: p50");
        let theirs = (theirs.name(), results.of(theirs));
        report.add(HeadlineMetric::Latency.row(what, results.of(ours), theirs, target));
    };
    let (floor, awaited, blocking) = match bytes {
        64 => (
            RowTarget::None,
            RowTarget::RatioAtMost { full: 1.15, smoke: 20.0 },
            RowTarget::RatioAtMost { full: 1.25, smoke: 20.0 },
        ),
        0x10_0000 => (RowTarget::RatioAtMost { full: 1.2, smoke: 8.0 }, RowTarget::None, RowTarget::None),
        _ => (RowTarget::None, RowTarget::None, RowTarget::None),
    };
    add("", Participant::MeasuredPool, Participant::RawEcho, floor);
    // The best that an asynchronous host can do: both sides pay for the event loop's system call.
    add("", Participant::MeasuredPool, Participant::AwaitedEcho, awaited);
    add(", without async", Participant::OursBlocking, Participant::RawEcho, blocking);
    add(", a task that awaits a raw echo", Participant::AwaitedEcho, Participant::RawEcho, RowTarget::None);
    add(", both on one core", Participant::OursOnOneCore, Participant::RawEchoOnOneCore, RowTarget::None);
    add(
        ", host and worker each on a core",
        Participant::OursOnTwoCores,
        Participant::RawEchoOnTwoCores,
        RowTarget::None,
    );
    let own_codec = match bytes {
        64 => RowTarget::RatioAtMost { full: 1.5, smoke: 3.0 },
        _ => RowTarget::None,
    };
    add(", without msgspec", Participant::OursOwnCodec, Participant::MeasuredPool, own_codec);
    // The same transport, plus everything that a pool adds.
    let same_way = match bytes {
        64 => RowTarget::RatioAtMost { full: 1.1, smoke: 3.0 },
        _ => RowTarget::None,
    };
    add(", both over gRPC", Participant::OursOverGrpc, Participant::GrpcSync, same_way);
    for peer in Participant::PEERS {
        let target = match (bytes, peer) {
            (64, Participant::GrpcSync | Participant::GrpcAio) => {
                RowTarget::RatioAtMost { full: 0.2, smoke: 0.8 }
            }
            _ => RowTarget::None,
        };
        add("", Participant::MeasuredPool, peer, target);
    }
}
