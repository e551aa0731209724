//! Benchmarks of mailboxes, each beside its floor in the same run.
//!
//! `bench-mailbox` prints the table; `--write` also writes it to `docs/bench/mailboxes.md`, `--quick` takes few rounds and
//! fails only for what a busy machine cannot excuse.

mod floor;
mod memory;
mod page;

use std::path::Path;
use std::process::ExitCode;

use snakepit_proving::bench::{Outcome, Report};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench-mailbox: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-mailbox [--quick] [--write]").into());
    }
    let is_quick = words.iter().any(|word| word == "--quick");
    let mut report = Report::begin(page::PAGE);
    memory::measure(&mut report, is_quick)?;
    print!("{}", report.text());
    if words.iter().any(|word| word == "--write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/mailboxes.md");
        std::fs::write(page, report.markdown())?;
    }
    let failing = if is_quick { report.broken() } else { report.missed() };
    for row in &failing {
        eprintln!("missed: {row}");
    }
    Ok(ExitCode::from(u8::from(!failing.is_empty())))
}
