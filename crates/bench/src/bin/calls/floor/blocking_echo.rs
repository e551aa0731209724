//! The floor of latency: a blocking client, a blocking Python loop, and messages with a length prefix.

use std::process::Command;
use std::time::Instant;

use snakepit_bench::BenchResult;

use crate::child::PythonChild;
use crate::python::BenchPython;
use crate::turns::{CallPace, CallTimes, EchoCaller};

// This file belongs to the program. `snakepit bench` shows the same floor, and a published crate cannot use files of
// another crate.
#[path = "../../../../../cli/src/bench/raw_echo.rs"]
mod raw_echo;

use raw_echo::RawEcho;
pub(crate) use raw_echo::SCRIPT;

/// A raw echo and its process.
pub(crate) struct RawWorker {
    echo: RawEcho,
    child: PythonChild,
}

impl RawWorker {
    pub(crate) fn start(python: &BenchPython) -> BenchResult<Self> {
        let (child, stream) =
            PythonChild::with_socket(Command::new(python.path()).args(["-c", SCRIPT, "0"]))?;
        Ok(Self { echo: RawEcho::over(stream), child })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }
}

impl EchoCaller for RawWorker {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let began = Instant::now();
        let times = self.echo.calls(bytes, calls)?;
        Ok(CallTimes::new(began.elapsed(), times.iter().map(std::time::Duration::as_secs_f64)))
    }

    fn many(&mut self, _bytes: usize, _calls: usize, _in_flight: usize) -> BenchResult<CallTimes> {
        Err("the raw echo has one call in flight; the floor of many is the pipelined one".into())
    }

    fn pace(&self) -> CallPace {
        CallPace::Fast
    }
}
