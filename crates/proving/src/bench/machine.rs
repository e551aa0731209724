//! What is said about the machine, and what a process weighs on it.

use std::fs;

use super::Outcome;

/// The load average of the last minute.
pub fn load() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Cores, processor and kernel.
pub fn describe() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.map_or("unknown", |(_, name)| name);
    format!("{cores} cores ({model}), Linux {}", kernel.trim())
}

/// What a process weighs, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// Its pages, shared ones by share.
    pub pss: f64,
    /// The pages that it alone has.
    pub private: f64,
}

impl Weight {
    /// Reads it from `smaps_rollup`.
    pub fn of(pid: impl std::fmt::Display) -> Outcome<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let field = |name: &str| -> Outcome<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).ok_or("a field is missing")?;
            let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(kibibytes / 1024.0)
        };
        Ok(Self { pss: field("Pss:")?, private: field("Private_Clean:")? + field("Private_Dirty:")? })
    }
}
