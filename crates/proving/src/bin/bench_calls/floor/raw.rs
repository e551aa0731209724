//! The floor of latency: a blocking client, a blocking Python loop and a length before each message.

use std::process::Command;
use std::time::Instant;

use snakepit_proving::bench::Outcome;

use crate::kid::Kid;
use crate::python::Python;
use crate::turns::{Caller, Laps, Pace};

// The program's own file: `snakepit bench` shows the same floor, and a published crate cannot reach out of itself.
#[path = "../../../../../cli/src/bench/raw_echo.rs"]
mod raw_echo;

use raw_echo::RawEcho;
pub(crate) use raw_echo::SCRIPT;

/// A raw echo and its process.
pub(crate) struct RawWorker {
    echo: RawEcho,
    kid: Kid,
}

impl RawWorker {
    pub(crate) fn start(python: &Python) -> Outcome<Self> {
        let (kid, stream) = Kid::with_socket(Command::new(python.path()).args(["-c", SCRIPT, "0"]))?;
        Ok(Self { echo: RawEcho::over(stream), kid })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.kid.pid()
    }
}

impl Caller for RawWorker {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        let began = Instant::now();
        let times = self.echo.calls(bytes, calls)?;
        Ok(Laps::new(began.elapsed(), times.iter().map(std::time::Duration::as_secs_f64)))
    }

    fn many(&mut self, _bytes: usize, _calls: usize, _in_flight: usize) -> Outcome<Laps> {
        Err("the raw echo has one call in flight; the floor of many is the pipelined one".into())
    }

    fn pace(&self) -> Pace {
        Pace::Fast
    }
}
