//! A host that holds 1 GiB spawns as fast as a small one, because it never forks.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use snakepit_proving::bench::{Beside, Report, Row, Samples, Target, Unit};

use crate::{Bench, Outcome};

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let mut small = Spawner::start(bench, 0)?;
    let mut large = Spawner::start(bench, 1024)?;
    let (mut small_custody, mut large_custody) = (Samples::default(), Samples::default());
    let (mut small_fork, mut large_fork) = (Samples::default(), Samples::default());
    for _ in 0..bench.effort.rounds(300) {
        small_custody.push(small.once("custody")?);
        large_custody.push(large.once("custody")?);
    }
    for _ in 0..bench.effort.rounds(60) {
        small_fork.push(small.once("fork")?);
        large_fork.push(large.once("fork")?);
    }
    small.end()?;
    large.end()?;
    report.add(Row {
        what: "spawn to exec from a host that holds 1 GiB, shim".to_owned(),
        unit: Unit::Seconds,
        ours: large_custody.into(),
        beside: Some(Beside { name: "the same from a small host".to_owned(), side: small_custody.into() }),
        target: Target::RatioAtMost { full: 1.2, smoke: 8.0 },
    });
    report.add(Row {
        what: "for contrast: std's Command with pre_exec from 1 GiB".to_owned(),
        unit: Unit::Seconds,
        ours: large_fork.into(),
        beside: Some(Beside { name: "the same from a small host".to_owned(), side: small_fork.into() }),
        target: Target::None,
    });
    Ok(())
}

/// A host that spawns when told to; see `roles`.
struct Spawner {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Spawner {
    fn start(bench: &Bench, mebibytes: usize) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["spawner", &mebibytes.to_string()])
            .arg(bench.scratch.join(format!("spawner-{mebibytes}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        let mut spawner = Self { process, answers };
        match spawner.answer()?.as_str() {
            "ready" => Ok(spawner),
            other => Err(format!("a spawner that is not ready: {other:?}").into()),
        }
    }

    /// Seconds until the program ran.
    fn once(&mut self, way: &str) -> Outcome<f64> {
        writeln!(self.process.stdin.as_mut().expect("piped"), "{way}")?;
        Ok(self.answer()?.parse::<f64>()? / 1e9)
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn end(mut self) -> Outcome<()> {
        drop(self.process.stdin.take());
        self.process.wait()?;
        Ok(())
    }
}
