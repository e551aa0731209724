//! The time from `kill -9` of the host until the last process has ended, for each tier beside its own mechanism.

use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit_bench::{BenchReport, Comparand, ReportRow, RowTarget, SampleSet, Unit};

use crate::host_tree::{HostTree, Subreaper};
use crate::{BenchResult, CustodyBench, roles};

/// A tier, and the floor's tree with the same mechanism and only PDEATHSIG.
const PAIRS: [(&str, &str); 4] =
    [("group", "chain"), ("shim", "chain"), ("auto", "chain"), ("namespace", "pidns-proc")];

/// Numbers of workers, each with its rounds.
const SIZES: [(usize, usize); 4] = [(1, 60), (10, 40), (100, 21), (500, 9)];

/// The program that the workers run, on both sides.
pub(crate) const WORKER: [&str; 2] = ["/bin/sleep", "1000"];

pub(crate) fn measure(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    let floor = compile_floor(&bench.scratch)?;
    let _orphanage = Subreaper::open()?;
    for (tier, mechanism) in PAIRS {
        if let Err(why) = roles::available(tier) {
            report.note(format!("kill -9 in the {tier} tier is left out: {why}"));
            continue;
        }
        for (workers, rounds) in SIZES {
            if workers <= bench.most_workers() {
                report.add(pair(bench, &floor, tier, mechanism, workers, bench.effort.rounds(rounds))?);
            }
        }
    }
    Ok(())
}

fn pair(
    bench: &CustodyBench,
    floor: &Path,
    tier: &str,
    mechanism: &str,
    workers: usize,
    rounds: usize,
) -> BenchResult<ReportRow> {
    // Host, keeper, and a shim and a program per worker.
    let size = 2 + 2 * workers;
    let (mut ours, mut plain) = (SampleSet::default(), SampleSet::default());
    // All rounds share the directory, as in production: the keeper's program stays there between runs.
    let state = bench.scratch.join(format!("kill-{tier}"));
    for _ in 0..rounds {
        let mut host = Command::new(std::env::current_exe()?);
        host.args(["host", tier, &workers.to_string()]).arg(&state);
        // Custody starts one spare shim with a process at its gate.
        let tree = HostTree::start(&mut host, size + 2)?;
        ours.push_time(tree.kill()?);

        let mut host = Command::new(std::env::current_exe()?);
        host.arg("plain-host").arg(floor).args([mechanism, &workers.to_string()]).args(WORKER);
        let tree = HostTree::start(&mut host, size)?;
        plain.push_time(tree.kill()?);
    }
    Ok(ReportRow {
        what: format!(
            "kill -9 of the host → all gone: {tier}, {workers} worker{}",
            if workers == 1 { "" } else { "s" }
        ),
        unit: Unit::Seconds,
        ours: ours.into(),
        beside: Some(Comparand { name: format!("{mechanism} with PDEATHSIG"), side: plain.into() }),
        target: RowTarget::RatioAtMost { full: 2.0, smoke: 50.0 },
    })
}

/// Compiles the floor like the keeper: static, small, without symbols.
fn compile_floor(scratch: &Path) -> BenchResult<PathBuf> {
    let program = scratch.join("floor");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/floor.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let flags = ["--edition=2024", "-O", "-Cpanic=abort", "-Ctarget-feature=+crt-static", "-Cstrip=symbols"];
    let status = Command::new(rustc).args(flags).arg("-o").arg(&program).arg(source).status()?;
    if !status.success() {
        return Err(format!("rustc could not compile the floor: {status}").into());
    }
    Ok(program)
}
