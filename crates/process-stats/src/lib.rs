//! What the kernel reports about a worker and all processes that it started: state, CPU time, memory.
//!
//! Read from `/proc`; without it, nothing is known. Every value may be out of date when it is read, and a process that
//! ends meanwhile is left out. Knows no pool and no call, and blocks while it reads.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod oom;
mod oom_verdict;
mod proc;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::time::Duration;

pub use oom::OomDetector;
#[cfg(all(test, target_os = "linux"))]
use oom::OomWatch;
pub use oom_verdict::OomVerdict;

use snakepit_custody::Pid;

/// Whether to measure the proportional share of memory, too.
///
/// The proportional share is exact where processes share memory, but the kernel walks every page table for it. A look
/// at a Python worker of 210 MiB with one child took 0.1 ms without it and 3 to 8 ms with it (2 busy cores,
/// `measure_the_cost_of_reading_process_statistics`), and more with more memory. So the resident size is read often, and the share only once the
/// resident size reaches a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pss {
    /// Do not measure it.
    Skip,
    /// Measure it.
    Measure,
}

/// Returns a worker and all processes that it started and that are still below its shim. Blocks like `ProcessStats::read`.
pub fn family_of(worker: Pid, shim: Option<Pid>) -> Vec<i32> {
    let mut family = proc::descendants(shim.unwrap_or(worker).as_raw());
    if !family.contains(&worker.as_raw()) {
        family.push(worker.as_raw());
    }
    family
}

/// Reports whether a worker's process has ended, even if nobody has waited for it yet. Returns false if nothing is
/// known.
pub fn has_ended(worker: Pid) -> bool {
    match proc::Stat::read(worker.as_raw()) {
        Some(stat) => stat.is_over,
        None => proc::Stat::read(std::process::id() as i32).is_some(),
    }
}

/// Reports whether a worker's process is stopped, by a signal or by a debugger. Returns false if nothing is known.
pub fn is_stopped(worker: Pid) -> bool {
    proc::Stat::read(worker.as_raw()).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// A snapshot of a worker and its descendants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProcessStats {
    /// The state of the worker's main process, as the letter in `/proc/PID/stat`.
    pub state: char,
    /// The CPU time of all processes, including those that have ended.
    pub cpu: Duration,
    /// The resident memory of all processes. Shared memory counts once for each process.
    pub rss_bytes: u64,
    /// The memory of all processes, with shared memory divided among the processes that share it. `None` if it was not
    /// requested or is not available.
    pub pss_bytes: Option<u64>,
    /// The number of processes.
    pub processes: usize,
    /// The number of threads of all processes.
    pub threads: usize,
}

impl ProcessStats {
    /// Reads the statistics of a worker. `shim` is the parent of orphans that the worker started. Without a shim (the
    /// portable keeper is the parent of every worker), only the worker's own descendants are found.
    ///
    /// Returns `None` if the worker is gone, or if this system has no such data. Blocks for as long as the kernel
    /// takes.
    pub fn read(worker: Pid, shim: Option<Pid>, pss: Pss) -> Option<Self> {
        let worker = worker.as_raw();
        let root = shim.map_or(worker, Pid::as_raw);
        let mut family = proc::descendants(root);
        if shim.is_none() {
            family.push(worker);
        }
        // A pid that is not in the family no longer belongs to the worker.
        if !family.contains(&worker) {
            return None;
        }
        let main = proc::Stat::read(worker)?;
        // The CPU time of the processes that the shim has waited for.
        let reaped =
            shim.and_then(|shim| proc::Stat::read(shim.as_raw())).map_or(0, |stat| stat.reaped_ticks);
        let mut ticks = reaped;
        let (mut rss_pages, mut processes, mut threads) = (0, 0, 0);
        for stat in family.iter().filter_map(|pid| proc::Stat::read(*pid)) {
            ticks += stat.ticks + stat.reaped_ticks;
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
