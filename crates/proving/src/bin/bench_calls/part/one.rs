//! One call in flight: how long it takes.

use snakepit_proving::bench::{Outcome, Report, Target};

use super::{Cast, Scores};
use crate::Bench;
use crate::turns::{Headline, show_bytes};
use crate::who::Who;

/// Bytes, calls in a turn, rounds.
const SIZES: [(usize, usize, usize); 3] = [(64, 200, 48), (4 << 10, 200, 24), (1 << 20, 24, 24)];

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let near = [
        Who::Ours,
        Who::RawEcho,
        Who::AwaitedEcho,
        Who::OursOwnCodec,
        Who::OursOnOneCore,
        Who::RawEchoOnOneCore,
        Who::OursOnTwoCores,
        Who::RawEchoOnTwoCores,
        Who::OursOverGrpc,
        Who::OursOverStdio,
        Who::OursOverHttp,
    ];
    let mut cast = Cast::start(bench, 1, near.into_iter().chain(Who::PEERS))?;
    for (bytes, calls, rounds) in SIZES {
        let scores = cast.play(bench.rounds(rounds), |caller| caller.one(bytes, calls))?;
        rows(report, bytes, &scores);
    }
    Ok(())
}

fn rows(report: &mut Report, bytes: usize, scores: &Scores) {
    let size = show_bytes(bytes);
    let mut add = |what: &str, ours: Who, theirs: Who, target: Target| {
        let what = format!("{size}, one in flight, 1 worker{what}: p50");
        let theirs = (theirs.name(), scores.of(theirs));
        report.add(Headline::Latency.row(what, scores.of(ours), theirs, target));
    };
    let floor = match bytes {
        64 => Target::RatioAtMost { full: 1.25, smoke: 20.0 },
        0x10_0000 => Target::RatioAtMost { full: 1.3, smoke: 8.0 },
        _ => Target::None,
    };
    add("", Who::Ours, Who::RawEcho, floor);
    // What is left to an asynchronous host: the event loop's system call is in both.
    add("", Who::Ours, Who::AwaitedEcho, Target::None);
    add(", a task that awaits a raw echo", Who::AwaitedEcho, Who::RawEcho, Target::None);
    add(", both on one core", Who::OursOnOneCore, Who::RawEchoOnOneCore, Target::None);
    add(", host and worker each on a core", Who::OursOnTwoCores, Who::RawEchoOnTwoCores, Target::None);
    let own_codec = match bytes {
        64 => Target::RatioAtMost { full: 1.5, smoke: 3.0 },
        _ => Target::None,
    };
    add(", without msgspec", Who::OursOwnCodec, Who::Ours, own_codec);
    // The same way, with all that a pool does besides.
    let same_way = match bytes {
        64 => Target::RatioAtMost { full: 1.1, smoke: 3.0 },
        _ => Target::None,
    };
    add(", both over gRPC", Who::OursOverGrpc, Who::GrpcSync, same_way);
    add(", over stdio", Who::OursOverStdio, Who::RawEcho, Target::None);
    add(", both over HTTP", Who::OursOverHttp, Who::Mosec, Target::None);
    for peer in Who::PEERS {
        let target = match (bytes, peer) {
            (64, Who::GrpcSync | Who::GrpcAio) => Target::RatioAtMost { full: 0.2, smoke: 0.8 },
            _ => Target::None,
        };
        add("", Who::Ours, peer, target);
    }
}
