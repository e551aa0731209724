//! Benchmarks of custody: one table, each number beside its floor, measured by turns in the same run.
//!
//! `bench` prints the table, and `--write` also writes it to `docs/bench/custody.md`. `--smoke` takes few rounds and fails
//! only where a busy machine is no excuse. Words select parts: `bench kill`.

#![expect(clippy::cast_precision_loss, reason = "statistics over small counts")]

// The keeper's own files: the ledger's writer is private to custody, and a benchmark does not make it public.
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

/// What every part gets.
struct CustodyBench {
    effort: Effort,
    /// On a real disk, and removed at the end.
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
        // Not /tmp, which may be memory: the ledger's floor is a disk's.
        let scratch =
            std::env::current_exe()?.with_file_name(format!("bench-scratch-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        Ok(Self { effort, scratch })
    }

    /// The largest number of workers that is measured.
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

/// 500 workers are 1001 processes, and each is watched through a descriptor.
fn raise_descriptor_limit() -> BenchResult<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8192, |maximum| maximum.min(8192));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    }
    Ok(())
}
