//! A host that holds 1 GiB spawns as fast as a small one, because it never forks.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use snakepit_bench::{BenchReport, Comparand, ReportRow, RowTarget, SampleSet, Unit};

use crate::{BenchResult, CustodyBench};

pub(crate) fn measure(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    let mut small = SpawnerHost::start(bench, 0)?;
    let mut large = SpawnerHost::start(bench, 1024)?;
    let (mut small_custody, mut large_custody) = (SampleSet::default(), SampleSet::default());
    let (mut small_fork, mut large_fork) = (SampleSet::default(), SampleSet::default());
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
    report.add(ReportRow {
        what: "spawn to exec from a host that holds 1 GiB, shim".to_owned(),
        unit: Unit::Seconds,
        ours: large_custody.into(),
        beside: Some(Comparand { name: "the same from a small host".to_owned(), side: small_custody.into() }),
        target: RowTarget::RatioAtMost { full: 1.2, smoke: 8.0 },
    });
    report.add(ReportRow {
        what: "for contrast: std's Command with pre_exec from 1 GiB".to_owned(),
        unit: Unit::Seconds,
        ours: large_fork.into(),
        beside: Some(Comparand { name: "the same from a small host".to_owned(), side: small_fork.into() }),
        target: RowTarget::None,
    });
    Ok(())
}

/// A host that spawns on request. See `roles`.
struct SpawnerHost {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl SpawnerHost {
    fn start(bench: &CustodyBench, mebibytes: usize) -> BenchResult<Self> {
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

    /// Returns the seconds until the program ran.
    fn once(&mut self, way: &str) -> BenchResult<f64> {
        writeln!(self.process.stdin.as_mut().expect("piped"), "{way}")?;
        Ok(self.answer()?.parse::<f64>()? / 1e9)
    }

    fn answer(&mut self) -> BenchResult<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn end(mut self) -> BenchResult<()> {
        drop(self.process.stdin.take());
        self.process.wait()?;
        Ok(())
    }
}
