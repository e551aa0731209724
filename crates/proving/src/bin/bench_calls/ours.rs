//! Ours: the library behind the same questions that floors and peers answer.
//!
//! Nothing else in this benchmark knows the library. Until it has pools, [`start`] says so, and every row of ours is
//! "not measured yet".

use snakepit_proving::bench::Outcome;

use crate::python::Python;
use crate::turns::{Caller, Start};

/// What speaks MessagePack in the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    /// `msgspec`, which the benchmark's environment has.
    Msgspec,
    /// The SDK's own, as if `msgspec` could not be imported.
    Own,
}

/// The pool that is wanted.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "read by what starts a pool, which is not there yet")]
pub(crate) struct Shape {
    pub(crate) workers: usize,
    /// How many calls a worker may hold at a time.
    pub(crate) window: usize,
    pub(crate) codec: Codec,
}

/// A pool that is ready: every worker has said so. Dropping it stops it and waits until all is gone.
///
/// Its worker has three commands: `echo(data)` answers its bytes, `count(n)` streams the numbers below n, and
/// `tiny(number)` answers the next number.
pub(crate) trait Ours: Caller {
    /// Takes a stream of so many numbers from one worker, to its end.
    fn stream(&mut self, items: usize) -> Outcome<()>;

    /// So many `tiny` calls through `map`; all results are looked at.
    fn map(&mut self, calls: usize) -> Outcome<()>;

    /// The workers' own pids: not their shims'.
    fn worker_pids(&self) -> Outcome<Vec<i32>>;
}

/// Starts a pool and waits until all its workers are ready.
#[expect(clippy::unnecessary_wraps, reason = "starting a pool can fail, once there is one to start")]
pub(crate) fn start(_python: &Python, _shape: Shape) -> Outcome<Start<Box<dyn Ours>>> {
    Ok(Start::Absent("not measured yet".to_owned()))
}
