//! Peers whose host is Python: a script drives them and times them, and answers our orders with its numbers.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use snakepit_proving::bench::Outcome;

use crate::kid::{Kid, Talk};
use crate::python::Python;
use crate::turns::{Caller, Laps, Pace};

/// Ray's daemons are told to end, and then take their time.
const RAY_ENDS: Duration = Duration::from_secs(15);

/// A Python host with its pool. The orders come first: their end is what tells it to end.
pub(crate) struct Host {
    talk: Talk,
    workers: usize,
    pids: Vec<i32>,
    _kid: Kid,
}

impl Host {
    pub(crate) fn start(python: &Python, kind: &str, workers: usize) -> Outcome<Self> {
        let mut command = Command::new(python.path());
        command.arg(Python::script("pools.py")).args([kind, &workers.to_string()]);
        let (kid, talk, first) = Kid::with_pipes(&mut command)?;
        let first: Value = serde_json::from_str(&first)?;
        let pids = first["pids"].as_array().ok_or("no pids")?;
        let pids = pids.iter().filter_map(Value::as_i64).map(|pid| pid as i32).collect();
        let grace = if kind == "ray" { RAY_ENDS } else { Duration::ZERO };
        Ok(Self { talk, workers, pids, _kid: kid.with_grace(grace) })
    }

    /// So many tiny calls through the pool's own `map`; how long it took.
    pub(crate) fn map(&mut self, calls: usize, chunk: usize) -> Outcome<Duration> {
        Ok(self.order(&format!("map {calls} {chunk}"))?.0)
    }

    pub(crate) fn worker_pids(&self) -> &[i32] {
        &self.pids
    }

    fn order(&mut self, order: &str) -> Outcome<(Duration, Vec<f64>)> {
        read_answer(&self.talk.order(order)?)
    }
}

impl Caller for Host {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        let (total, times) = self.order(&format!("one {bytes} {calls}"))?;
        Ok(Laps::new(total, times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
        let (total, times) = self.order(&format!("many {bytes} {calls} {}", in_flight * self.workers))?;
        Ok(Laps::new(total, times))
    }

    fn pace(&self) -> Pace {
        Pace::Slow
    }
}

/// `multiprocessing.Pool`, only started: how it makes its processes decides.
pub(crate) struct PoolStart {
    talk: Talk,
    _kid: Kid,
}

impl PoolStart {
    pub(crate) fn new(python: &Python, method: &str) -> Outcome<Self> {
        let mut command = Command::new(python.path());
        let (kid, talk, _) = Kid::with_pipes(command.arg(Python::script("pool_start.py")).arg(method))?;
        Ok(Self { talk, _kid: kid })
    }

    /// Until each of so many workers is there.
    pub(crate) fn start(&mut self, workers: usize) -> Outcome<Duration> {
        Ok(read_answer(&self.talk.order(&workers.to_string())?)?.0)
    }
}

fn read_answer(line: &str) -> Outcome<(Duration, Vec<f64>)> {
    let answer: Value = serde_json::from_str(line)?;
    let total = answer["total"].as_f64().ok_or("no total")?;
    let times = answer["times"].as_array().ok_or("no times")?;
    Ok((Duration::from_secs_f64(total), times.iter().filter_map(Value::as_f64).collect()))
}
