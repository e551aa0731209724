//! What a table states about the machine that it was measured on.

use std::fs;

/// Returns the load average of the last minute.
pub fn load() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Describes cores, processor and kernel.
pub fn describe() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.map_or("unknown", |(_, name)| name);
    format!("{cores} cores ({model}), Linux {}", kernel.trim())
}
