//! Holding everything that takes part on one core: threads and processes inherit the affinity of their makers.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use snakepit_proving::bench::Outcome;

use crate::turns::{Caller, Laps, Pace};

/// Does something while this thread, and whatever it starts meanwhile, is held on one core.
pub(crate) fn on_one_core<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let before = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)).ok_or("no core")?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    done
}

/// A caller that was started on one core and is driven from it.
pub(crate) struct Held(pub(crate) Box<dyn Caller>);

impl Caller for Held {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        on_one_core(|| self.0.one(bytes, calls))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
        on_one_core(|| self.0.many(bytes, calls, in_flight))
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }
}
