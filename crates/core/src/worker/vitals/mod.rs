//! What the kernel says about a worker and everything that it started: state, CPU time, memory.
//!
//! Read from `/proc`; where there is none, nothing is known. Everything here may be out of date when it is read, and a
//! process that ends meanwhile is simply not in it.

mod oom;
mod proc;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::time::Duration;

pub(crate) use oom::OomDetector;
#[cfg(all(test, target_os = "linux"))]
pub(crate) use oom::OomWatch;

#[cfg(test)]
use crate::call::Verdict;
use crate::custody::Pid;

/// Whether the proportional share of memory is measured, too.
///
/// It is the truth where processes share memory, and the kernel walks every page table for it: a look at a Python worker of
/// 210 MiB with one child took 0.1 ms without and 3 to 8 ms with it (2 busy cores, `what_a_look_costs`), and more with
/// more memory. So the resident size is looked at often, and this only where that is near a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pss {
    Skip,
    Measure,
}

/// A worker and everybody whom it has started and who is still below its shim. Blocks as `Vitals::read` does.
pub fn family_of(worker: Pid, shim: Option<Pid>) -> Vec<i32> {
    let mut family = proc::descendants(shim.unwrap_or(worker).as_raw());
    if !family.contains(&worker.as_raw()) {
        family.push(worker.as_raw());
    }
    family
}

/// Whether a worker's process has ended, also if nobody has waited for it yet. False where nothing is known.
pub(crate) fn has_ended(worker: Pid) -> bool {
    match proc::Stat::read(worker.as_raw()) {
        Some(stat) => stat.is_over,
        None => proc::Stat::read(std::process::id() as i32).is_some(),
    }
}

/// Whether a worker's process is stopped, by a signal or by a debugger. False where nothing is known.
pub(crate) fn is_stopped(worker: Pid) -> bool {
    proc::Stat::read(worker.as_raw()).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// A worker and its descendants at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Vitals {
    /// The state of the worker's main process, the letter of `/proc/PID/stat`.
    pub(crate) state: char,
    /// CPU time of all of them, of those that have ended included.
    pub(crate) cpu: Duration,
    /// Resident memory of all of them; what they share is counted for each.
    pub(crate) rss_bytes: u64,
    /// Memory of all of them with what is shared divided among those who share it; `None` where it was not asked for or
    /// could not be had.
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
}

impl Vitals {
    /// Looks at a worker. `shim` is the parent of all that the worker started and lost; without one (the portable
    /// keeper is the parent of every worker) only the worker's own descendants are found.
    ///
    /// `None`: it is gone, or this system does not tell. Blocks for as long as the kernel takes.
    pub(crate) fn read(worker: Pid, shim: Option<Pid>, pss: Pss) -> Option<Self> {
        let worker = worker.as_raw();
        let root = shim.map_or(worker, Pid::as_raw);
        let mut family = proc::descendants(root);
        if shim.is_none() {
            family.push(worker);
        }
        // A number that is not among them is not the worker's any more.
        if !family.contains(&worker) {
            return None;
        }
        let main = proc::Stat::read(worker)?;
        // Those whom the shim buried.
        let buried =
            shim.and_then(|shim| proc::Stat::read(shim.as_raw())).map_or(0, |stat| stat.buried_ticks);
        let mut ticks = buried;
        let (mut rss_pages, mut processes, mut threads) = (0, 0, 0);
        for stat in family.iter().filter_map(|pid| proc::Stat::read(*pid)) {
            ticks += stat.ticks + stat.buried_ticks;
            rss_pages += stat.rss_pages;
            processes += 1;
            threads += stat.threads;
        }
        let pss_bytes = match pss {
            Pss::Skip => None,
            Pss::Measure => proc::pss_of(&family),
        };
        Some(Self {
            state: main.state,
            cpu: proc::time_of(ticks),
            rss_bytes: rss_pages * rustix::param::page_size() as u64,
            pss_bytes,
            processes,
            threads,
        })
    }
}
