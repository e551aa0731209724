//! A bare interpreter: what its start takes and what it weighs before anybody's library is loaded.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_proving::bench::Outcome;

use crate::kid::Kid;
use crate::python::Python;

/// How bare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    /// Imports `socket` and speaks over it.
    WithSocket,
    /// Imports nothing and writes to a descriptor.
    Barest,
}

/// Interpreters that have connected back and are blocked in a read.
pub(crate) struct Interpreters {
    kids: Vec<(Kid, UnixStream)>,
}

impl Interpreters {
    /// Starts so many at once; the time until the last one has connected back.
    pub(crate) fn start(python: &Python, bare: Bare, count: usize) -> Outcome<(Self, Duration)> {
        let script = Python::script(match bare {
            Bare::WithSocket => "bare.py",
            Bare::Barest => "barest.py",
        });
        let began = Instant::now();
        let mut kids = (0..count)
            .map(|_| Kid::with_socket(Command::new(python.path()).arg(&script).arg("0")))
            .collect::<Outcome<Vec<_>>>()?;
        for (_, stream) in &mut kids {
            stream.read_exact(&mut [0])?;
        }
        Ok((Self { kids }, began.elapsed()))
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.kids.iter().map(|(kid, _)| kid.pid()).collect()
    }
}
