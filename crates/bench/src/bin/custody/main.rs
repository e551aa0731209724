//! Benchmarks of custody: one table of numbers beside their floors, measured by turns in the same run.
//!
//! `bench` prints the table, and `--write` also writes it to `docs/bench/custody.md`. `--smoke` takes few rounds and
//! fails only if a busy machine is no excuse. Words select parts: `bench kill`.

#![expect(clippy::cast_precision_loss, reason = "statistics over small counts")]

// The keeper's own files. The ledger's writer is private to custody, and a benchmark is no reason to make it public.
#[path = "../../../../custody/src/keeper/ledger.rs"]
#[expect(dead_code, reason = "only appending is measured")]
mod ledger_writer;
#[path = "../../../../custody/src/ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the writer needs a part of it"))]
mod record;
#[path = "../../../../custody/src/keeper/sys/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the writer needs a part of it")]
mod sys;

mod host_tree;
mod kill;
mod large_host;
mod ledger;
mod memory;
mod open;
mod page;
mod roles;
mod spawn;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use snakepit_bench::{BenchProgram, BenchResult, Effort};

/// The input of every part.
struct CustodyBench {
    effort: Effort,
    /// The directory is on a real disk and is removed at the end.
    scratch: PathBuf,
}

const PROGRAM: BenchProgram<CustodyBench> = BenchProgram {
    name: "bench",
    page: page::PAGE,
    document: "custody.md",
    parts: &[
        ("kill", kill::measure),
        ("latency", spawn::latency),
        ("rate", spawn::rate),
        ("gigabyte", large_host::measure),
        ("open", open::measure),
        ("ledger", ledger::measure),
        ("memory", memory::measure),
    ],
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = roles::play(&args) {
        return status;
    }
    PROGRAM.run(&args, |effort, _| CustodyBench::new(effort))
}

impl CustodyBench {
    fn new(effort: Effort) -> BenchResult<Self> {
        raise_descriptor_limit()?;
        // Not in /tmp, which may be in memory: the ledger's floor is that of a disk.
        let scratch =
            std::env::current_exe()?.with_file_name(format!("bench-scratch-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        Ok(Self { effort, scratch })
    }

    /// Returns the largest number of workers to measure.
    fn most_workers(&self) -> usize {
        match self.effort {
            Effort::Full => usize::MAX,
            Effort::Quick => 100,
        }
    }
}

impl Drop for CustodyBench {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.scratch) {
            eprintln!("bench: {} is left behind: {error}", self.scratch.display());
        }
    }
}

/// Raises the limit of descriptors. 500 workers are 1001 processes, and each is watched through a descriptor.
fn raise_descriptor_limit() -> BenchResult<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8192, |maximum| maximum.min(8192));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    }
    Ok(())
}
