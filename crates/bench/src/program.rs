//! A benchmark program whose table has parts: its options, its report and its exit status.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{BenchReport, BenchResult, ReportPage};

/// Measures a part of the table and adds its rows. `B` is what every part of the program needs.
pub type BenchPart<B> = fn(&B, &mut BenchReport) -> BenchResult<()>;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough rounds for medians to settle.
    Full,
    /// A few rounds, for the test suite and for comparisons that repeat the whole program.
    Quick,
}

/// A program: `NAME [--write] [--quick] [PART…]`.
#[derive(Debug)]
pub struct BenchProgram<B: 'static> {
    /// The name of the program.
    pub name: &'static str,
    /// The text around the table.
    pub page: ReportPage,
    /// The file in `docs/bench/` that `--write` replaces.
    pub document: &'static str,
    /// The parts, in the order of the table.
    pub parts: &'static [(&'static str, BenchPart<B>)],
}

impl Effort {
    /// Returns the number of rounds for a part that needs `full` rounds until its medians settle.
    pub fn rounds(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full.div_ceil(12).max(2),
        }
    }
}

impl<B> BenchProgram<B> {
    /// Measures the parts that the arguments name and prints the table. The exit status is 0 if every target was
    /// reached, 1 if not, and 2 if something could not be measured. `--quick` only fails if a busy machine is no
    /// excuse.
    pub fn run(
        &self,
        args: &[String],
        prepare: impl FnOnce(Effort, &mut BenchReport) -> BenchResult<B>,
    ) -> ExitCode {
        self.try_run(args, prepare).unwrap_or_else(|error| fail(self.name, &*error))
    }

    fn try_run(
        &self,
        args: &[String],
        prepare: impl FnOnce(Effort, &mut BenchReport) -> BenchResult<B>,
    ) -> BenchResult<ExitCode> {
        let (options, words): (Vec<&String>, Vec<&String>) = args.iter().partition(|it| it.starts_with("--"));
        // Custody's benchmark has always called this option `--smoke`.
        let known = ["--write", "--quick", "--smoke"];
        if let Some(unknown) = options.iter().find(|it| !known.contains(&it.as_str())) {
            return Err(format!(
                "unknown option {unknown}; usage: {} [--write] [--quick] [PART…]",
                self.name
            )
            .into());
        }
        if let Some(unknown) = words.iter().find(|word| !self.parts.iter().any(|(name, _)| name == *word)) {
            let names: Vec<&str> = self.parts.iter().map(|(name, _)| *name).collect();
            return Err(format!("unknown part {unknown}; the parts are {}", names.join(", ")).into());
        }
        let asked = |option: &str| options.iter().any(|it| *it == option);
        let effort = if asked("--quick") || asked("--smoke") { Effort::Quick } else { Effort::Full };

        let mut report = BenchReport::begin(self.page);
        let bench = prepare(effort, &mut report)?;
        for (name, part) in self.parts {
            if words.is_empty() || words.iter().any(|word| word == name) {
                eprintln!("measuring: {name}");
                part(&bench, &mut report)?;
            }
        }
        print!("{}", report.text());
        if asked("--write") {
            write_document(self.document, &report.markdown())?;
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
}

/// Replaces a file in `docs/bench/`.
pub fn write_document(name: &str, text: &str) -> BenchResult<()> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench").join(name);
    std::fs::write(&path, text)?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// Prints why nothing more is measured, and returns the exit status of a program that could not measure.
pub fn fail(program: &str, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{program}: {error}");
    ExitCode::from(2)
}
