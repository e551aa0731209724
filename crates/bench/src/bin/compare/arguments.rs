//! The arguments of the command line.

use std::path::PathBuf;

use snakepit_bench::{BenchResult, Effort};

use crate::PROGRAMS;

const USAGE: &str = "usage: bench-compare [--rounds N] [--full] OLD_DIR NEW_DIR [PROGRAM…]";

/// Nine pairs give an interval that one outlier on either side does not widen. Fewer than six give none.
const ROUNDS: usize = 9;

/// The directories of both builds, and how much to measure.
pub(crate) struct CompareArguments {
    pub(crate) old: PathBuf,
    pub(crate) new: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) effort: Effort,
    programs: Vec<String>,
}

impl CompareArguments {
    pub(crate) fn parse(args: &[String]) -> BenchResult<Self> {
        let (mut rounds, mut effort, mut words) = (ROUNDS, Effort::Quick, Vec::new());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rounds" => {
                    let number = args.next().ok_or("--rounds needs a number")?;
                    rounds = number.parse().map_err(|_| format!("--rounds needs a number, not {number}"))?;
                }
                "--full" => effort = Effort::Full,
                "--help" => return Err(USAGE.into()),
                option if option.starts_with("--") => {
                    return Err(format!("unknown option {option}; {USAGE}").into());
                }
                word => words.push(word.to_owned()),
            }
        }
        if words.len() < 2 {
            return Err(USAGE.into());
        }
        let programs = words.split_off(2);
        if let Some(unknown) = programs.iter().find(|word| PROGRAMS.iter().all(|(name, _)| name != word)) {
            let names = PROGRAMS.map(|(name, _)| name).join(", ");
            return Err(format!("unknown program {unknown}; the programs are {names}").into());
        }
        let [old, new] = [&words[0], &words[1]].map(PathBuf::from);
        for dir in [&old, &new] {
            if !dir.is_dir() {
                return Err(format!("{} is not a directory; {USAGE}", dir.display()).into());
            }
        }
        Ok(Self { old, new, rounds, effort, programs })
    }

    pub(crate) fn wants(&self, program: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|it| it == program)
    }
}
