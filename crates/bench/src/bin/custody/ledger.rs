//! One record appended to the ledger, beside a bare write.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use snakepit_bench::{BenchReport, Comparand, ReportRow, RowTarget, SampleSet, Unit};

use crate::ledger_writer::{Common, Ledger};
use crate::record::RecordKind;
use crate::{BenchResult, CustodyBench};

/// The appends of one turn. A single one is too short for the clock.
const TURN: u32 = 500;

/// The bytes of each write of the floor.
const BARE: usize = 512;

pub(crate) fn measure(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
    for round in 0..bench.effort.rounds(120) {
        let dir = bench.scratch.join(format!("ledger-{round}"));
        std::fs::create_dir(&dir)?;
        ours.push_time(append(&dir, TURN)? / TURN);
        floor.push_time(bare_writes(&dir.join("bare"), TURN)? / TURN);
    }
    report.add(ReportRow {
        what: "ledger append".to_owned(),
        unit: Unit::Seconds,
        ours: ours.into(),
        beside: Some(Comparand { name: format!("pwrite of {BARE} B"), side: floor.into() }),
        target: RowTarget::None,
    });
    Ok(())
}

fn append(dir: &Path, times: u32) -> BenchResult<Duration> {
    File::create(dir.join("ledger"))?;
    let mut ledger = Ledger::open(File::open(dir)?.into(), 0, false)?;
    let common = Common { tier: 1, boot: [7; 16], pidns: 7 };
    let began = Instant::now();
    for key in 0..u64::from(times) {
        ledger.slots.append(&[&common.record(RecordKind::Record, key, b"w1")])?;
    }
    Ok(began.elapsed())
}

fn bare_writes(path: &Path, times: u32) -> BenchResult<Duration> {
    let file = File::create(path)?;
    let record = [7_u8; BARE];
    let began = Instant::now();
    for at in 0..u64::from(times) {
        file.write_all_at(&record, at * BARE as u64)?;
    }
    Ok(began.elapsed())
}
