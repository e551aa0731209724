//! How much memory a process takes.

use std::fs;

use crate::BenchResult;

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    /// Its pages, each divided by the number of processes that share it.
    pub pss: f64,
    /// The pages that no other process has.
    pub private: f64,
}

impl ProcessMemory {
    /// Reads `smaps_rollup`.
    pub fn of(pid: impl std::fmt::Display) -> BenchResult<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let field = |name: &str| -> BenchResult<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).ok_or("a field is missing")?;
            let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(kibibytes / 1024.0)
        };
        Ok(Self { pss: field("Pss:")?, private: field("Private_Clean:")? + field("Private_Dirty:")? })
    }
}
