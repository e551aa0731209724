//! `snakepit bench`: measures what a call costs on this machine and compares it with the floor of any call to a Python
//! process.
//!
//! This is the short form of `bench-calls` in `crates/bench`. It takes the same measurements in turns and needs only
//! python3.

mod calls;
mod raw_echo;
mod statistics;

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use indicatif::HumanCount;
use rustix::net::sockopt;
use serde::Serialize;
use snakepit::custody::{self, Command, Run, Stdio};
use snakepit::{CallError, Snakepit};
use tokio::runtime::Builder;

use crate::shared::engine;
use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::options::StateReportOptions;
use raw_echo::RawEcho;
use statistics::{median, quantile};

/// Measure calls on this machine, beside the floor: a blocking Python loop that only echoes. Takes a few seconds.
#[derive(clap::Args)]
#[command(
    after_help = "Calls and the floor take turns, and each number is the median of the rounds. Only the ratio can be \
                  compared between machines.\nExit status: 0 when it was measured, 125 when it could not be."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    options: StateReportOptions,
}

const BYTES: usize = 64;
const WORKERS: usize = 2;
const IN_FLIGHT: usize = 64;
/// The goal: at most this multiple of the floor.
const TARGET: f64 = 1.25;
/// The file descriptor of the floor's socket.
const ECHO_FD: i32 = 3;
/// The engine uses the same size.
const SOCKET_BUFFER: usize = 4 << 20;

/// The amount of work to measure.
#[derive(Clone, Copy)]
struct Workload {
    rounds: usize,
    /// Calls per round, one at a time.
    calls: usize,
    /// Calls per round, many at a time.
    many: usize,
    items: usize,
}

impl Workload {
    /// Tests set `SNAKEPIT_QUICK`. The small numbers show that the command works, not how fast calls are.
    fn from_environment() -> Self {
        if std::env::var_os("SNAKEPIT_QUICK").is_some() {
            Self { rounds: 2, calls: 20, many: 500, items: 500 }
        } else {
            Self { rounds: 20, calls: 200, many: 10_000, items: 20_000 }
        }
    }
}

#[derive(Serialize)]
struct BenchSummary {
    python: String,
    bytes: usize,
    p50_us: f64,
    p99_us: f64,
    floor_p50_us: f64,
    ratio: f64,
    target_ratio: f64,
    workers: usize,
    in_flight: usize,
    calls_per_second: f64,
    items_per_second: f64,
    busy: Option<String>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<u8, CliFailure> {
    let config = args.options.state.apply(custody::CustodyOptions::default());
    let runtime = engine::runtime(Builder::new_multi_thread().worker_threads(2))?;
    let measured = runtime.block_on(async {
        let pit = calls::start(config).await?;
        let summary = measure(&pit, Workload::from_environment()).await;
        pit.stop().await;
        summary
    });
    let summary = measured.map_err(|error: Box<dyn Error>| {
        CliFailure::new("cannot measure", &*error).hint("`snakepit doctor` shows what is missing")
    })?;
    args.options.output.print(&summary, || summary.text());
    Ok(SUCCESS)
}

async fn measure(pit: &Snakepit, amount: Workload) -> Result<BenchSummary, Box<dyn Error>> {
    let [executable, python]: [String; 2] = pit.call("who", ()).await?;
    let mut floor = start_floor(pit.run().ok_or("the engine has no processes")?, &executable)?;
    let busy = busy();
    let (mut p50, mut p99, mut floor_p50) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up and does not count.
    for round in 0..=amount.rounds {
        let mine = micros(&calls::one_by_one(pit, BYTES, amount.calls).await?);
        let raw = micros(&floor.calls(BYTES, amount.calls)?);
        if round > 0 {
            p50.push(median(mine.clone()));
            p99.push(quantile(mine, 0.99));
            floor_p50.push(median(raw));
        }
    }
    let (p50, floor_p50) = (median(p50), median(floor_p50));
    let rounds = amount.rounds / 2;
    Ok(BenchSummary {
        python,
        bytes: BYTES,
        p50_us: p50,
        p99_us: median(p99),
        floor_p50_us: floor_p50,
        ratio: p50 / floor_p50,
        target_ratio: TARGET,
        workers: WORKERS,
        in_flight: IN_FLIGHT * WORKERS,
        calls_per_second: rate(rounds, amount.many, async || calls::many(pit, BYTES, amount.many).await)
            .await?,
        items_per_second: rate(rounds, amount.items, async || calls::stream(pit, amount.items).await).await?,
        busy,
    })
}

/// Returns the median rate per second. The first round does not count.
async fn rate(
    rounds: usize,
    amount: usize,
    round: impl AsyncFn() -> Result<Duration, CallError>,
) -> Result<f64, CallError> {
    round().await?;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        seconds.push(round().await?.as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let amount = amount as f64;
    Ok(amount / median(seconds))
}

fn micros(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
}

/// Starts the floor's process in custody, like any other process.
fn start_floor(run: &Run, python: &str) -> io::Result<RawEcho> {
    let (ours, theirs) = UnixStream::pair()?;
    for end in [&ours, &theirs] {
        if sockopt::set_socket_send_buffer_size_force(end, SOCKET_BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER)?;
        }
    }
    let script = [raw_echo::SCRIPT, &ECHO_FD.to_string()];
    let command = Command::new(python).arg("-c").args(script).stdin(Stdio::Null).fd(theirs, ECHO_FD);
    run.spawn(command).map_err(io::Error::other)?;
    Ok(RawEcho::over(ours))
}

/// Returns a warning if other work on the machine distorts the numbers.
fn busy() -> Option<String> {
    let load: f64 = std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let limit = cores as f64 / 2.0;
    (load > limit)
        .then(|| format!("the load is {load} on {cores} cores: measure again when the machine is quiet"))
}

impl BenchSummary {
    fn text(&self) -> String {
        let mut text = format!(
            "{} B, one in flight    p50 {:>8.1} µs    p99 {:.1} µs\n\
             raw echo (floor)       p50 {:>8.1} µs    ratio {:.2}, target at most {:.2}\n\
             {} B, {} in flight    {:>12} calls/s over {} workers\n\
             stream                 {:>12} items/s\n\
             {}\n",
            self.bytes,
            self.p50_us,
            self.p99_us,
            self.floor_p50_us,
            self.ratio,
            self.target_ratio,
            self.bytes,
            self.in_flight,
            grouped(self.calls_per_second),
            self.workers,
            grouped(self.items_per_second),
            self.python,
        );
        if let Some(busy) = &self.busy {
            let _ = writeln!(text, "{busy}");
        }
        text
    }
}

/// Formats a number in groups of three digits: `1,234,567`.
fn grouped(number: f64) -> String {
    HumanCount(number.round() as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([1.0, 999.4, 1000.0, 1_234_567.0].map(grouped), ["1", "999", "1,000", "1,234,567"]);
    }
}
