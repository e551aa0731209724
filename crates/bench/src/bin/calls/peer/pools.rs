//! Peers whose host is Python: a script calls them, times them, and answers our orders with its numbers.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use snakepit_bench::BenchResult;

use crate::child::{ChildPipes, PythonChild};
use crate::python::BenchPython;
use crate::turns::{CallPace, CallTimes, EchoCaller};

/// The time in which Ray's daemons must exit.
const RAY_ENDS: Duration = Duration::from_secs(15);

/// A Python host with its pool. The pipes are dropped first, which tells the host to exit.
pub(crate) struct PythonPoolHost {
    pipes: ChildPipes,
    workers: usize,
    pids: Vec<i32>,
    _child: PythonChild,
}

impl PythonPoolHost {
    pub(crate) fn start(python: &BenchPython, kind: &str, workers: usize) -> BenchResult<Self> {
        let mut command = Command::new(python.path());
        command.arg(BenchPython::script("pools.py")).args([kind, &workers.to_string()]);
        let (child, pipes, first) = PythonChild::with_pipes(&mut command)?;
        let first: Value = serde_json::from_str(&first)?;
        let pids = first["pids"].as_array().ok_or("no pids")?;
        let pids = pids.iter().filter_map(Value::as_i64).map(|pid| pid as i32).collect();
        let grace = if kind == "ray" { RAY_ENDS } else { Duration::ZERO };
        Ok(Self { pipes, workers, pids, _child: child.with_grace(grace) })
    }

    /// Makes `calls` tiny calls through the pool's own `map` and returns the total time.
    pub(crate) fn map(&mut self, calls: usize, chunk: usize) -> BenchResult<Duration> {
        Ok(self.order(&format!("map {calls} {chunk}"))?.0)
    }

    pub(crate) fn worker_pids(&self) -> &[i32] {
        &self.pids
    }

    fn order(&mut self, order: &str) -> BenchResult<(Duration, Vec<f64>)> {
        read_answer(&self.pipes.order(order)?)
    }
}

impl EchoCaller for PythonPoolHost {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let (total, times) = self.order(&format!("one {bytes} {calls}"))?;
        Ok(CallTimes::new(total, times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        let (total, times) = self.order(&format!("many {bytes} {calls} {}", in_flight * self.workers))?;
        Ok(CallTimes::new(total, times))
    }

    fn pace(&self) -> CallPace {
        CallPace::Slow
    }
}

/// Starts `multiprocessing.Pool` with one of its start methods.
pub(crate) struct PoolStart {
    pipes: ChildPipes,
    _child: PythonChild,
}

impl PoolStart {
    pub(crate) fn new(python: &BenchPython, method: &str) -> BenchResult<Self> {
        let mut command = Command::new(python.path());
        let (child, pipes, _) =
            PythonChild::with_pipes(command.arg(BenchPython::script("pool_start.py")).arg(method))?;
        Ok(Self { pipes, _child: child })
    }

    /// Returns the time until all workers have started.
    pub(crate) fn start(&mut self, workers: usize) -> BenchResult<Duration> {
        Ok(read_answer(&self.pipes.order(&workers.to_string())?)?.0)
    }
}

fn read_answer(line: &str) -> BenchResult<(Duration, Vec<f64>)> {
    let answer: Value = serde_json::from_str(line)?;
    let total = answer["total"].as_f64().ok_or("no total")?;
    let times = answer["times"].as_array().ok_or("no times")?;
    Ok((Duration::from_secs_f64(total), times.iter().filter_map(Value::as_f64).collect()))
}
