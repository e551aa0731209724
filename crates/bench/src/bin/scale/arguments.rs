//! The command line of `bench-scale`.

use std::time::Duration;

use snakepit_bench::BenchResult;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    /// The threads of the runtime.
    pub(crate) threads: usize,
    /// The numbers of workers, one row each.
    pub(crate) workers: Vec<usize>,
    /// The calls in flight for each worker.
    pub(crate) in_flight: usize,
    /// How often each cell is measured.
    pub(crate) rounds: usize,
    /// How long each measurement lasts.
    pub(crate) lasts: Duration,
    /// The columns to measure. Empty for all.
    pub(crate) columns: Vec<String>,
}

const USAGE: &str = "usage: bench-scale [--quick] [--threads N] [--workers N,N,…] [--in-flight N] \
                     [--rounds N] [echo] [ones] [work] [large] [map]";

impl Arguments {
    /// Reads the command line. Without `--workers`, the numbers double up to the number of cores.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> BenchResult<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let doubling = std::iter::successors(Some(1), |workers| Some(workers * 2));
        let mut read = Self {
            threads: cores,
            workers: doubling.take_while(|workers| *workers <= cores).collect(),
            in_flight: 64,
            rounds: 5,
            lasts: Duration::from_secs(1),
            columns: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut number = || words.next().ok_or(USAGE);
            match word.as_str() {
                "--quick" => (read.rounds, read.lasts) = (1, Duration::from_millis(300)),
                "--threads" => read.threads = number()?.parse()?,
                "--in-flight" => read.in_flight = number()?.parse()?,
                "--rounds" => read.rounds = number()?.parse()?,
                "--workers" => {
                    read.workers = number()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "echo" | "ones" | "work" | "large" | "map" => read.columns.push(word),
                _ => return Err(format!("unknown argument {word}; {USAGE}").into()),
            }
        }
        Ok(read)
    }

    /// Reports whether a column is to be measured.
    pub(crate) fn measures(&self, column: &str) -> bool {
        self.columns.is_empty() || self.columns.iter().any(|wanted| wanted == column)
    }
}
