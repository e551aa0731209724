//! One measurement: some workers, many callers, and the rate and the cost of their calls.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use snakepit::adapter::PythonWorker;
use snakepit::value::Blob;
use snakepit::{Pool, PoolOptions, Snakepit, args, custody};
use snakepit_bench::pool::interpreter;
use snakepit_bench::{BenchResult, TaskResult};

/// How the workers are divided into pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Division {
    /// One pool has all workers.
    OnePool,
    /// Each worker is a pool of its own.
    PoolsOfOne,
}

/// What callers call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// `echo` with 64 bytes.
    Echo,
    /// `work`, which computes for 1 ms.
    Work,
    /// `size` with 1 MiB.
    Large,
}

/// The result of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Calls per second.
    pub(crate) rate: f64,
    /// Seconds of the host's CPU for each call.
    pub(crate) cpu: f64,
}

/// An engine whose workers are all ready.
pub(crate) struct Bench {
    pit: Snakepit,
    pub(crate) workers: usize,
}

impl Bench {
    /// Starts workers and waits until all are ready.
    pub(crate) async fn start(home: &Path, workers: usize, division: Division) -> BenchResult<Self> {
        let script = home.join("worker.py");
        std::fs::write(&script, include_str!("worker.py"))?;
        let pool = |name: String, workers: usize| -> PoolOptions {
            let worker = PythonWorker::new(&script).interpreter(interpreter());
            snakepit::python(worker).name(name).workers(workers).queue_limit(1 << 20)
        };
        let pools = match division {
            Division::OnePool => vec![pool("all".into(), workers)],
            Division::PoolsOfOne => (0..workers).map(|number| pool(format!("one{number}"), 1)).collect(),
        };
        let custody = custody::CustodyOptions::default().state_dir(home.join("state"));
        let builder = pools.into_iter().fold(Snakepit::builder(), snakepit::Builder::pool);
        Ok(Self { pit: builder.custody(custody).start().await?, workers })
    }

    /// Calls for some time. Each worker's callers are tasks of their own, which call one after the other.
    pub(crate) async fn run(
        &self,
        workload: Workload,
        in_flight: usize,
        lasts: Duration,
    ) -> BenchResult<Measured> {
        let pools = self.pit.pools();
        let until = Instant::now() + lasts;
        let (cpu, began) = (cpu_seconds(), Instant::now());
        let callers: Vec<_> = (0..self.workers * in_flight)
            .map(|caller| tokio::spawn(call_until(pools[caller % pools.len()].clone(), workload, until)))
            .collect();
        let mut calls = 0;
        for caller in callers {
            calls += caller.await?.map_err(|error| -> Box<dyn std::error::Error> { error })?;
        }
        let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        Ok(Measured { rate: f64::from(calls) / took, cpu: cpu / f64::from(calls) })
    }

    /// Makes calls of `tiny` through `map`. Returns the calls per second.
    pub(crate) async fn map(&self, calls: u64) -> BenchResult<f64> {
        let began = Instant::now();
        let inputs = (0..calls).map(|number| (number,));
        let answers = self.pit.pools()[0].map::<u64, _>("tiny", inputs).in_order()?;
        let sum: u64 = answers.try_fold(0, async |sum, answer| Ok(sum + answer)).await?;
        assert_eq!(sum, calls * (calls + 1) / 2, "each input gets its own answer");
        Ok(calls as f64 / began.elapsed().as_secs_f64())
    }

    pub(crate) async fn stop(self) {
        self.pit.stop().await;
    }
}

async fn call_until(pool: Pool, workload: Workload, until: Instant) -> TaskResult<u32> {
    let bytes = Blob::from(vec![7; if workload == Workload::Large { 1 << 20 } else { 64 }]);
    let mut calls = 0;
    while Instant::now() < until {
        match workload {
            Workload::Echo => drop(pool.call::<Blob>("echo", args! { data: &bytes }).await?),
            Workload::Work => drop(pool.call::<Blob>("work", args! { data: &bytes }).await?),
            Workload::Large => {
                let size: u64 = pool.call("size", args! { data: &bytes }).await?;
                assert_eq!(size, 1 << 20, "the worker got all bytes");
            }
        }
        calls += 1;
    }
    Ok(calls)
}

/// Returns the CPU time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
