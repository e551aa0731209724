//! Compares two builds: runs the old and the new binary of every benchmark by turns and judges each row.
//!
//! `bench-compare [--rounds N] [--full] OLD_DIR NEW_DIR [PROGRAM…]` prints for each row the median ratio of new to old
//! cost with a 95 % interval. It exits with 1 if a row is worse, and with 2 if a program could not be run.

mod arguments;
mod page;

use std::path::Path;
use std::process::{Command, ExitCode};

use arguments::CompareArguments;
use snakepit_bench::comparison::BuildComparison;
use snakepit_bench::program::fail;
use snakepit_bench::{BenchResult, Effort, python};

/// Each benchmark and the option with which it takes few rounds.
const PROGRAMS: [(&str, &str); 6] = [
    ("bench", "--smoke"),
    ("bench-calls", "--quick"),
    ("bench-lifecycle", "--quick"),
    ("bench-loops", "--quick"),
    ("bench-mailbox", "--quick"),
    ("bench-supervision", "--quick"),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match compare(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail("bench-compare", &*error),
    }
}

/// Compares the builds and returns how many rows are worse.
fn compare(args: &[String]) -> BenchResult<usize> {
    let arguments = CompareArguments::parse(args)?;
    let mut worse = 0;
    for (program, quick) in PROGRAMS {
        if !arguments.wants(program) {
            continue;
        }
        let options: &[&str] = match arguments.effort {
            Effort::Quick => &[quick],
            Effort::Full => &[],
        };
        let mut comparison = BuildComparison::default();
        for round in 0..arguments.rounds {
            eprintln!("{program}: round {} of {}", round + 1, arguments.rounds);
            let run = |dir: &Path| run(&dir.join(program), options);
            // The second program runs on a warmer machine, so the builds take turns at being second.
            let (old, new) = if round % 2 == 0 {
                let old = run(&arguments.old)?;
                (old, run(&arguments.new)?)
            } else {
                let new = run(&arguments.new)?;
                (run(&arguments.old)?, new)
            };
            comparison.add_round(&old, &new);
        }
        let table = page::table(program, &comparison);
        print!("{}", table.text);
        worse += table.worse;
    }
    println!("{worse} rows are worse: a ratio above 1.05 whose interval excludes 1.");
    Ok(worse)
}

/// Runs a program and returns its output. A missed target is not an error, because the other build may miss it, too.
fn run(program: &Path, options: &[&str]) -> BenchResult<String> {
    let mut command = Command::new(program);
    command.args(options);
    // Each build would search beside itself, and one of them might find no environment.
    if let Some(interpreter) = python::environment()? {
        command.env(python::VARIABLE, interpreter);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    if let Some(0 | 1) = output.status.code() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{} failed with {}:\n{said}", program.display(), output.status).into())
}
