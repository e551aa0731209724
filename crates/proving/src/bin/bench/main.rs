//! Benchmarks of custody: one table, each number beside its floor, measured in the same run by turns.
//!
//! `bench` prints the table, `bench --write` also writes it to `docs/bench/custody.md`, `bench --smoke` takes few
//! rounds and fails only on what a busy machine cannot excuse. A word selects rows: `bench kill`.

#![expect(clippy::cast_precision_loss, reason = "statistics over small counts")]

// The keeper's pen, from the keeper's own files: custody needs no back door for a benchmark.
#[path = "../../../../custody/src/keeper/ledger.rs"]
#[expect(dead_code, reason = "only appending is measured")]
mod pen;
#[path = "../../../../custody/src/ledger/record.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the pen needs a part of it"))]
mod record;
#[path = "../../../../custody/src/keeper/sys/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the pen needs a part of it")]
mod sys;

mod gigabyte;
mod kill;
mod ledger;
mod memory;
mod open;
mod page;
mod roles;
mod spawn;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use snakepit_proving::bench::{Outcome, Report};

/// A part of the table.
type Part = fn(&Bench, &mut Report) -> Outcome<()>;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Enough for medians to settle.
    Full,
    /// A few rounds, for the test suite.
    Smoke,
}

impl Effort {
    fn rounds(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Smoke => full.div_ceil(12).max(3),
        }
    }

    fn most_workers(self) -> usize {
        match self {
            Self::Full => usize::MAX,
            Self::Smoke => 100,
        }
    }
}

/// What every benchmark gets.
struct Bench {
    effort: Effort,
    /// Scratch space on a real disk, removed at the end.
    scratch: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = roles::play(&args) {
        return status;
    }
    match run(&args) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Outcome<ExitCode> {
    let (options, words): (Vec<&String>, Vec<&String>) = args.iter().partition(|it| it.starts_with("--"));
    if let Some(unknown) = options.iter().find(|it| !["--write", "--smoke"].contains(&it.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench [--write] [--smoke] [WORD…]").into());
    }
    let asked = |option: &str| options.iter().any(|it| *it == option);
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let effort = if asked("--smoke") { Effort::Smoke } else { Effort::Full };
    raise_descriptor_limit()?;

    let bench = Bench { effort, scratch: scratch_dir()? };
    let mut report = Report::begin(page::PAGE);
    let parts: [(&str, Part); 7] = [
        ("kill", kill::measure),
        ("latency", spawn::latency),
        ("rate", spawn::rate),
        ("gigabyte", gigabyte::measure),
        ("open", open::measure),
        ("ledger", ledger::measure),
        ("memory", memory::measure),
    ];
    for (name, part) in parts {
        if wanted(name) {
            eprintln!("measuring: {name}");
            part(&bench, &mut report)?;
        }
    }
    fs::remove_dir_all(&bench.scratch)?;

    print!("{}", report.text());
    if asked("--write") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/custody.md");
        fs::create_dir_all(path.parent().expect("a parent"))?;
        fs::write(&path, report.markdown())?;
        eprintln!("written: {}", path.display());
    }
    let failed = match effort {
        Effort::Full => report.missed(),
        Effort::Smoke => report.broken(),
    };
    for row in &failed {
        println!("missed: {row}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Not /tmp, which may be memory: the ledger's floor is to be that of a disk.
fn scratch_dir() -> Outcome<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.with_file_name(format!("bench-scratch-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// 500 workers are 1001 processes, and each is watched through a descriptor.
fn raise_descriptor_limit() -> Outcome<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wish = limit.maximum.map_or(8192, |maximum| maximum.min(8192));
    if limit.current.is_some_and(|current| current < wish) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wish), maximum: limit.maximum })?;
    }
    Ok(())
}
