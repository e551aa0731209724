//! Snakepit as a participant without `async`: the calling thread reads the answers itself.

use std::time::{Duration, Instant};

use snakepit::adapter::PythonWorker;
use snakepit::custody::CustodyOptions;
use snakepit::lifecycle::Blocking;
use snakepit::value::Blob;
use snakepit::{Snakepit, args};
use snakepit_bench::BenchResult;
use tempfile::TempDir;

use crate::python::BenchPython;
use crate::turns::{CallPace, CallTimes, EchoCaller};

/// An engine for a host without a runtime, with one worker.
pub(crate) struct BlockingEngine {
    pit: Blocking,
    _home: TempDir,
}

impl BlockingEngine {
    pub(crate) fn start(python: &BenchPython) -> BenchResult<Self> {
        let home = tempfile::tempdir()?;
        let worker = PythonWorker::new(BenchPython::script("worker.py")).interpreter(python.path());
        let custody = CustodyOptions::default().state_dir(home.path());
        let builder = Snakepit::builder().pool(snakepit::python(worker).workers(1)).custody(custody);
        Ok(Self { pit: builder.start_blocking()?, _home: home })
    }
}

impl Drop for BlockingEngine {
    fn drop(&mut self) {
        self.pit.stop();
    }
}

impl EchoCaller for BlockingEngine {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let data = Blob::from(vec![b'x'; bytes]);
        let mut times = Vec::with_capacity(calls);
        let started = Instant::now();
        for _ in 0..calls {
            let began = Instant::now();
            let echoed: Blob = self.pit.call("echo", args! { data: data })?;
            times.push(began.elapsed());
            if echoed.len() != bytes {
                return Err("an echo has another length".into());
            }
        }
        Ok(CallTimes::new(started.elapsed(), times.iter().map(Duration::as_secs_f64)))
    }

    fn many(&mut self, bytes: usize, calls: usize, _in_flight: usize) -> BenchResult<CallTimes> {
        self.one(bytes, calls)
    }

    fn pace(&self) -> CallPace {
        CallPace::Fast
    }
}
