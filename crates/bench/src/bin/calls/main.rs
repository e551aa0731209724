//! Benchmarks of calls: one table of our numbers beside floors and peers, measured by turns in the same run.
//!
//! `bench-calls` prints the table, and `--write` also writes it to `docs/bench/calls.md`. `--quick` takes few rounds
//! and fails only if a busy machine is no excuse. Words select parts: `bench-calls one many`. The peers need
//! `--features peers` and the environment that `crates/bench/bench-venv` creates. The row of an absent peer states that
//! it is absent.

mod blocking;
mod child;
mod engine;
mod floor;
mod page;
mod part;
mod participant;
mod peer;
mod pinning;
mod python;
mod turns;

use std::process::ExitCode;

use python::BenchPython;
use snakepit_bench::{BenchProgram, Effort};

/// The input of every part.
struct CallBench {
    effort: Effort,
    python: BenchPython,
}

const PROGRAM: BenchProgram<CallBench> = BenchProgram {
    name: "bench-calls",
    page: page::PAGE,
    document: "calls.md",
    parts: &[
        ("one", part::latency::measure),
        ("many", part::throughput::measure),
        ("batch", part::batch::measure),
        ("adapters", part::adapters::measure),
        ("stream", part::stream::measure),
        ("map", part::map::measure),
        ("memory", part::memory::measure),
        ("start", part::start::measure),
    ],
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    PROGRAM.run(&args, |effort, report| {
        let bench = CallBench { effort, python: BenchPython::find()? };
        report.note(bench.python.describe()?);
        Ok(bench)
    })
}
