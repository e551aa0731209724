//! Benchmarks of calls: one table, ours beside floors and peers, measured in the same run by turns.
//!
//! `bench-calls` prints the table, `--write` also writes it to `docs/bench/calls.md`, `--quick` takes few rounds and
//! fails only on what a busy machine cannot excuse. A word selects parts: `bench-calls one many`. The peers need
//! `--features peers` and the environment that `crates/proving/bench-venv` makes; what is absent is said in its row.

mod floor;
mod grip;
mod kid;
mod ours;
mod page;
mod part;
mod peer;
mod python;
mod turns;
mod who;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use python::Python;
use snakepit_proving::bench::{Outcome, Report};

/// A part of the table.
type Part = fn(&Bench, &mut Report) -> Outcome<()>;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Enough for medians to settle.
    Full,
    /// A few rounds.
    Quick,
}

/// What every part gets.
struct Bench {
    effort: Effort,
    python: Python,
}

impl Bench {
    fn rounds(&self, full: usize) -> usize {
        match self.effort {
            Effort::Full => full,
            Effort::Quick => full.div_ceil(12).max(2),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("bench-calls: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Outcome<ExitCode> {
    let (options, words): (Vec<&String>, Vec<&String>) = args.iter().partition(|it| it.starts_with("--"));
    if let Some(unknown) = options.iter().find(|it| !["--write", "--quick"].contains(&it.as_str())) {
        return Err(
            format!("unknown option {unknown}; usage: bench-calls [--write] [--quick] [WORD…]").into()
        );
    }
    let parts: [(&str, Part); 6] = [
        ("one", part::one::measure),
        ("many", part::many::measure),
        ("stream", part::stream::measure),
        ("map", part::map::measure),
        ("memory", part::memory::measure),
        ("start", part::start::measure),
    ];
    if let Some(unknown) = words.iter().find(|word| !parts.iter().any(|(name, _)| name == *word)) {
        return Err(
            format!("unknown part {unknown}; there are {}", parts.map(|(name, _)| name).join(", ")).into()
        );
    }
    let asked = |option: &str| options.iter().any(|it| *it == option);
    let effort = if asked("--quick") { Effort::Quick } else { Effort::Full };
    let bench = Bench { effort, python: Python::find()? };
    let mut report = Report::begin(page::PAGE);
    report.note(bench.python.describe()?);
    for (name, part) in parts {
        if words.is_empty() || words.iter().any(|word| *word == name) {
            eprintln!("measuring: {name}");
            part(&bench, &mut report)?;
        }
    }

    print!("{}", report.text());
    if asked("--write") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/calls.md");
        fs::write(&path, report.markdown())?;
        eprintln!("written: {}", path.display());
    }
    let failed = match effort {
        Effort::Full => report.missed(),
        Effort::Quick => report.broken(),
    };
    for row in &failed {
        println!("missed: {row}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
