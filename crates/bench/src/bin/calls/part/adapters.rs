//! The adapters for HTTP and stdio, with one and with many calls in flight.
//!
//! Of two servers that do the same, ours must not be the bottleneck. So the peer's own server is measured behind our
//! pool and behind its own client path, and a server of bytes in plain Python beside it.

use snakepit_bench::{BenchReport, BenchResult, RowTarget};

use super::{Participants, TurnResults};
use crate::CallBench;
use crate::participant::{Participant, WINDOW};
use crate::turns::{CallPace, HeadlineMetric, show_bytes};

/// The payload, and the number of calls and rounds with one call and with many calls in flight.
struct PayloadSize {
    bytes: usize,
    one: (usize, usize),
    /// The number of calls of fast and of slow callers, and the rounds.
    many: (usize, usize, usize),
}

const SIZES: [PayloadSize; 3] = [
    PayloadSize { bytes: 64, one: (200, 24), many: (20_480, 2_048, 24) },
    PayloadSize { bytes: 4 << 10, one: (200, 12), many: (10_240, 2_048, 12) },
    PayloadSize { bytes: 1 << 20, one: (24, 24), many: (64, 64, 12) },
];

/// The bytes in flight for each worker.
const MOST_BYTES: usize = 2 << 20;

/// A row: what is appended to its name, ours and the other.
type AdapterRow = (&'static str, Participant, Participant);

const HTTP_ROWS: [AdapterRow; 3] = [
    ("the same server over HTTP", Participant::OursBeforeMosec, Participant::MosecServer),
    ("both over HTTP", Participant::OursOverHttp, Participant::MosecServer),
    ("both over HTTP, ours to http.server", Participant::OursOverHttpServer, Participant::MosecServer),
];

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    for workers in [1, 2] {
        let mut participants = Participants::start(
            bench,
            workers,
            [
                Participant::OursOverHttp,
                Participant::OursBeforeMosec,
                Participant::MosecServer,
                Participant::OursOverHttpServer,
                Participant::OursOverStdio,
                Participant::OursOverStdioOwnJson,
                Participant::MsgspecEcho,
            ],
        )?;
        for size in &SIZES {
            if workers == 1 {
                let (calls, rounds) = size.one;
                let results =
                    participants.play(bench.effort.rounds(rounds), |caller| caller.one(size.bytes, calls))?;
                latency_rows(report, size.bytes, &results);
            }
            let in_flight = (MOST_BYTES / size.bytes).clamp(1, WINDOW);
            let (fast, slow, rounds) = size.many;
            let results = participants.play(bench.effort.rounds(rounds), |caller| {
                let calls = match caller.pace() {
                    CallPace::Fast => fast,
                    CallPace::Slow => slow,
                };
                caller.many(size.bytes, calls, in_flight)
            })?;
            throughput_rows(report, size.bytes, (workers, in_flight), &results);
        }
    }
    Ok(())
}

fn latency_rows(report: &mut BenchReport, bytes: usize, results: &TurnResults) {
    let is_large = bytes == 1 << 20;
    let mut add = |(how, ours, theirs): AdapterRow, target: RowTarget| {
        let what = format!("{}, one in flight, 1 worker, {how}: p50", show_bytes(bytes));
        let theirs = (theirs.name(), results.of(theirs));
        report.add(HeadlineMetric::Latency.row(what, results.of(ours), theirs, target));
    };
    for row in HTTP_ROWS {
        let target = match row.1 {
            Participant::OursBeforeMosec | Participant::OursOverHttp if is_large => {
                RowTarget::RatioAtMost { full: 1.3, smoke: 6.0 }
            }
            _ => RowTarget::None,
        };
        add(row, target);
    }
    let lines = if is_large { RowTarget::SecondsAtMost { full: 0.003, smoke: 0.1 } } else { RowTarget::None };
    add(("over stdio", Participant::OursOverStdio, Participant::MsgspecEcho), lines);
    let own_json = "over stdio, with Python's own json";
    add((own_json, Participant::OursOverStdioOwnJson, Participant::OursOverStdio), RowTarget::None);
}

fn throughput_rows(
    report: &mut BenchReport,
    bytes: usize,
    (workers, in_flight): (usize, usize),
    results: &TurnResults,
) {
    let s = if workers == 1 { "" } else { "s" };
    let many = format!("{}, {in_flight} in flight for each of {workers} worker{s}", show_bytes(bytes));
    let mut add = |(how, ours, theirs): AdapterRow, target: RowTarget| {
        let theirs = (theirs.name(), results.of(theirs));
        let row = HeadlineMetric::Throughput.row(format!("{many}, {how}"), results.of(ours), theirs, target);
        report.add(row);
    };
    for row in HTTP_ROWS {
        let target = match row.1 {
            Participant::OursBeforeMosec | Participant::OursOverHttp if bytes < 1 << 20 => {
                RowTarget::RatioAtLeast { full: 1.0, smoke: 0.2 }
            }
            Participant::OursBeforeMosec | Participant::OursOverHttp => {
                RowTarget::RatioAtLeast { full: 0.77, smoke: 0.1 }
            }
            _ => RowTarget::None,
        };
        add(row, target);
    }
    add(("over stdio", Participant::OursOverStdio, Participant::MsgspecEcho), RowTarget::None);
}
