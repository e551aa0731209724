//! A bare interpreter: its start time and its memory before any library is loaded.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_bench::BenchResult;

use crate::child::PythonChild;
use crate::python::BenchPython;

/// The imports of a bare interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterpreterKind {
    /// Imports `socket` and uses it.
    WithSocket,
    /// Imports nothing and writes to a descriptor.
    Barest,
}

/// Interpreters that have connected back and are blocked in a read.
pub(crate) struct BareInterpreters {
    children: Vec<(PythonChild, UnixStream)>,
}

impl BareInterpreters {
    /// Starts `count` interpreters at once. Also returns the time until the last one has connected back.
    pub(crate) fn start(
        python: &BenchPython,
        interpreter: InterpreterKind,
        count: usize,
    ) -> BenchResult<(Self, Duration)> {
        let script = BenchPython::script(match interpreter {
            InterpreterKind::WithSocket => "bare.py",
            InterpreterKind::Barest => "barest.py",
        });
        let began = Instant::now();
        let mut children = (0..count)
            .map(|_| PythonChild::with_socket(Command::new(python.path()).arg(&script).arg("0")))
            .collect::<BenchResult<Vec<_>>>()?;
        for (_, stream) in &mut children {
            stream.read_exact(&mut [0])?;
        }
        Ok((Self { children }, began.elapsed()))
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.children.iter().map(|(child, _)| child.pid()).collect()
    }
}
