//! Pins participants to cores. Threads and processes inherit the affinity of their creator.
//!
//! Most of a small call's time depends on where the kernel puts a woken process: beside its waker, where no core has to
//! wake up, or on an idle core. Without pinning, the kernel chooses, and may choose differently for two participants.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use snakepit_bench::BenchResult;

use crate::turns::{Availability, CallPace, CallTimes, EchoCaller};

/// A participant, and the pids of its workers.
pub(crate) type CallerWithPids = (Box<dyn EchoCaller>, Vec<i32>);

/// A caller that is pinned to one core and called from that core.
struct PinnedCaller {
    caller: Box<dyn EchoCaller>,
    core: usize,
}

/// Starts host and workers on the same core.
pub(crate) fn together(
    start: impl FnOnce() -> BenchResult<Availability<CallerWithPids>>,
) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    let core = *cores()?.last().ok_or("no core")?;
    let started = on_core(core, start)?;
    Ok(started.map(|(caller, _)| -> Box<dyn EchoCaller> { Box::new(PinnedCaller { caller, core }) }))
}

/// Starts the host on one core and moves the workers to another.
pub(crate) fn apart(
    start: impl FnOnce() -> BenchResult<Availability<CallerWithPids>>,
) -> BenchResult<Availability<Box<dyn EchoCaller>>> {
    let [core, .., other] = cores()?[..] else {
        return Ok(Availability::Absent("there is one core only".to_owned()));
    };
    let (caller, pids) = match on_core(core, start)? {
        Availability::Available(it) => it,
        Availability::Absent(why) => return Ok(Availability::Absent(why)),
    };
    for pid in pids {
        sched_setaffinity(Some(Pid::from_raw(pid).ok_or("pid 0")?), &only(other))?;
    }
    Ok(Availability::Available(Box::new(PinnedCaller { caller, core })))
}

/// Runs `work` while this thread, and whatever it starts, is pinned to a core.
fn on_core<T>(core: usize, work: impl FnOnce() -> BenchResult<T>) -> BenchResult<T> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let done = work();
    sched_setaffinity(None, &before)?;
    done
}

fn cores() -> BenchResult<Vec<usize>> {
    let all = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect())
}

fn only(core: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(core);
    one
}

impl EchoCaller for PinnedCaller {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        on_core(self.core, || self.caller.one(bytes, calls))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        on_core(self.core, || self.caller.many(bytes, calls, in_flight))
    }

    fn pace(&self) -> CallPace {
        self.caller.pace()
    }
}
