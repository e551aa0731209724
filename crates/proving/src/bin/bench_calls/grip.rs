//! Holding those who take part on certain cores: threads and processes inherit the affinity of their makers.
//!
//! Where the kernel puts a woken process decides most of a small call's time: beside its waker (no core has to wake
//! up) or on an idle core. Unpinned, that is the kernel's choice, and it may differ between two participants.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use snakepit_proving::bench::Outcome;

use crate::turns::{Caller, Laps, Pace, Start};

/// A participant, and the pids of its workers.
pub(crate) type WithPids = (Box<dyn Caller>, Vec<i32>);

/// A caller whose host is held on one core, and is driven from it.
struct Held {
    caller: Box<dyn Caller>,
    core: usize,
}

/// Starts host and workers on the same core.
pub(crate) fn together(start: impl FnOnce() -> Outcome<Start<WithPids>>) -> Outcome<Start<Box<dyn Caller>>> {
    let core = *cores()?.last().ok_or("no core")?;
    let started = on_core(core, start)?;
    Ok(started.map(|(caller, _)| -> Box<dyn Caller> { Box::new(Held { caller, core }) }))
}

/// Starts the host on one core and moves the workers to another one.
pub(crate) fn apart(start: impl FnOnce() -> Outcome<Start<WithPids>>) -> Outcome<Start<Box<dyn Caller>>> {
    let [core, .., other] = cores()?[..] else {
        return Ok(Start::Absent("there is one core only".to_owned()));
    };
    let (caller, pids) = match on_core(core, start)? {
        Start::Here(it) => it,
        Start::Absent(why) => return Ok(Start::Absent(why)),
    };
    for pid in pids {
        sched_setaffinity(Some(Pid::from_raw(pid).ok_or("pid 0")?), &only(other))?;
    }
    Ok(Start::Here(Box::new(Held { caller, core })))
}

/// Does something while this thread, and whatever it starts meanwhile, is held on a core.
fn on_core<T>(core: usize, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let done = work();
    sched_setaffinity(None, &before)?;
    done
}

fn cores() -> Outcome<Vec<usize>> {
    let all = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect())
}

fn only(core: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(core);
    one
}

impl Caller for Held {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        on_core(self.core, || self.caller.one(bytes, calls))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
        on_core(self.core, || self.caller.many(bytes, calls, in_flight))
    }

    fn pace(&self) -> Pace {
        self.caller.pace()
    }
}
