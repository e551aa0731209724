//! `snakepit bench`: what a call costs on this machine, beside the floor of any call to a Python process.
//!
//! The short form of `bench-calls` in `proving`: the same questions, asked by turns, with nothing but python3.

mod ours;
mod raw_echo;
mod sample;

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;
use serde::Serialize;
use snakepit::custody::{self, Command, Run, Stdio};

use crate::Common;
use crate::say::{self, Failure};
use ours::Ours;
use raw_echo::RawEcho;
use sample::{median, quantile};

/// Measure calls on this machine, beside the floor: a blocking Python loop that only echoes. Takes some seconds.
#[derive(clap::Args)]
#[command(
    after_help = "Ours and the floor take turns, and each number is the median of the rounds. Only the ratio can be \
                  compared between machines.\nExit status: 0 when it was measured, 125 when it could not be."
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

const BYTES: usize = 64;
const WORKERS: usize = 2;
const IN_FLIGHT: usize = 64;
/// What we want to reach: at most so many times the floor.
const TARGET: f64 = 1.25;
/// Where the floor's process finds its socket.
const ECHO_FD: i32 = 3;
/// As ours has it.
const SOCKET_BUFFER: usize = 4 << 20;

/// How much is measured.
#[derive(Clone, Copy)]
struct Amount {
    rounds: usize,
    /// One at a time, in a round.
    calls: usize,
    /// Many at a time, in a round.
    many: usize,
    items: usize,
}

impl Amount {
    /// `SNAKEPIT_QUICK`, as everywhere, is for tests: it shows that it works, not how fast.
    fn wanted() -> Self {
        if std::env::var_os("SNAKEPIT_QUICK").is_some() {
            Self { rounds: 2, calls: 20, many: 500, items: 500 }
        } else {
            Self { rounds: 20, calls: 200, many: 10_000, items: 20_000 }
        }
    }
}

/// What was measured.
#[derive(Serialize)]
struct Report {
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

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let config = custody::Config { state_dir: args.common.state_dir.clone(), ..custody::Config::default() };
    let ours = Ours::start(config)?;
    let report = measure(&ours, Amount::wanted());
    ours.stop();
    let report = report?;
    say::out(&if args.common.json { say::json(&report) } else { report.text() });
    Ok(0)
}

fn measure(ours: &Ours, amount: Amount) -> Result<Report, Failure> {
    let [executable, python] = ours.who()?;
    let mut floor = start_floor(ours.run()?, &executable).map_err(|error| cannot(&error))?;
    let busy = busy();
    let (mut p50, mut p99, mut floor_p50) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up, and does not count.
    for round in 0..=amount.rounds {
        let mine = micros(&ours.echoes(BYTES, amount.calls)?);
        let raw = micros(&floor.calls(BYTES, amount.calls).map_err(|error| cannot(&error))?);
        if round > 0 {
            p50.push(median(mine.clone()));
            p99.push(quantile(mine, 0.99));
            floor_p50.push(median(raw));
        }
    }
    let (p50, floor_p50) = (median(p50), median(floor_p50));
    Ok(Report {
        python,
        bytes: BYTES,
        p50_us: p50,
        p99_us: median(p99),
        floor_p50_us: floor_p50,
        ratio: p50 / floor_p50,
        target_ratio: TARGET,
        workers: WORKERS,
        in_flight: IN_FLIGHT * WORKERS,
        calls_per_second: rate(amount.rounds / 2, amount.many, || ours.many(BYTES, amount.many))?,
        items_per_second: rate(amount.rounds / 2, amount.items, || ours.stream(amount.items))?,
        busy,
    })
}

/// So many per second, in the middle of the rounds; the first one does not count.
fn rate(
    rounds: usize,
    amount: usize,
    mut round: impl FnMut() -> Result<Duration, Failure>,
) -> Result<f64, Failure> {
    round()?;
    let times = (0..rounds).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let amount = amount as f64;
    Ok(amount / median(times.iter().map(Duration::as_secs_f64).collect()))
}

fn micros(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
}

/// The floor's process is as well kept as any other.
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

/// Whether somebody else works here; the numbers are then about the machine.
fn busy() -> Option<String> {
    let load: f64 = std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let limit = cores as f64 / 2.0;
    (load > limit)
        .then(|| format!("the load is {load} on {cores} cores: measure again when the machine is quiet"))
}

fn cannot(error: &dyn std::error::Error) -> Failure {
    Failure::new("cannot measure", error).hint("`snakepit doctor` says what is missing")
}

impl Report {
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

/// `1234567` as `1,234,567`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([1.0, 999.4, 1000.0, 1_234_567.0].map(grouped), ["1", "999", "1,000", "1,234,567"]);
    }
}
