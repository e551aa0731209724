//! The time of a spawn until its program runs, and spawns per second.

use std::ffi::CString;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};
use snakepit_bench::{BenchReport, Comparand, ReportRow, RowTarget, SampleSet, Unit};

use crate::{BenchResult, CustodyBench, roles};

/// The targets hold for the first tier.
const TIERS: [&str; 4] = ["shim", "auto", "namespace", "group"];

/// The number of threads that spawn at once in the concurrent rows.
const THREADS: usize = 4;

/// The spawns of one thread in one slice of the rate.
const SLICE: usize = 50;

pub(crate) fn latency(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    for tier in TIERS {
        if let Err(why) = roles::available(tier) {
            report.note(format!("spawns in the {tier} tier are left out: {why}"));
            continue;
        }
        let run = roles::open(tier, &bench.scratch.join(format!("latency-{tier}")))?;
        let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
        for _ in 0..bench.effort.rounds(600) {
            ours.push_time(roles::spawn_once(&run)?);
            floor.push_time(posix_spawn_once()?);
        }
        roles::stop(&run)?;
        let target = match tier {
            "shim" => RowTarget::RatioAtMost { full: 3.0, smoke: 50.0 },
            _ => RowTarget::None,
        };
        report.add(ReportRow {
            what: format!("spawn to exec: {tier}"),
            unit: Unit::Seconds,
            ours: ours.into(),
            beside: Some(Comparand { name: "posix_spawn".to_owned(), side: floor.into() }),
            target,
        });
    }
    Ok(())
}

pub(crate) fn rate(bench: &CustodyBench, report: &mut BenchReport) -> BenchResult<()> {
    for tier in TIERS {
        if roles::available(tier).is_err() {
            continue;
        }
        let run = roles::open(tier, &bench.scratch.join(format!("rate-{tier}")))?;
        for threads in [1, THREADS] {
            let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
            for _ in 0..bench.effort.rounds(16) {
                ours.push(per_second(threads, || roles::spawn_once(&run).map(drop))?);
                floor.push(per_second(threads, || posix_spawn_once().map(drop))?);
            }
            let target = match tier {
                "shim" => RowTarget::AtLeast { full: 500.0, smoke: 50.0 },
                _ => RowTarget::None,
            };
            report.add(ReportRow {
                what: format!(
                    "spawn + wait of /bin/true: {tier}, {threads} thread{}",
                    if threads == 1 { "" } else { "s" }
                ),
                unit: Unit::PerSecond,
                ours: ours.into(),
                beside: Some(Comparand { name: "posix_spawn + waitpid".to_owned(), side: floor.into() }),
                target,
            });
        }
        roles::stop(&run)?;
    }
    Ok(())
}

/// Returns the spawns per second in one slice, in which every thread spawns [`SLICE`] times.
fn per_second(threads: usize, once: impl Fn() -> BenchResult<()> + Sync) -> BenchResult<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let slices: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| (0..SLICE).try_for_each(|_| once()).map_err(|it| it.to_string())))
            .collect();
        slices.into_iter().try_for_each(|slice| slice.join().expect("a slice that does not panic"))
    })?;
    Ok((threads * SLICE) as f64 / began.elapsed().as_secs_f64())
}

/// Spawns with the floor: the C library's `posix_spawn`, which returns when the program runs.
fn posix_spawn_once() -> BenchResult<Duration> {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    let program = CString::new("/bin/true")?;
    let argv = [program.as_ptr().cast_mut(), ptr::null_mut()];
    let mut pid = 0;
    let began = Instant::now();
    // SAFETY: program and argv live until the call has returned, argv ends with null, and nothing in this program
    // changes the environment.
    let error = unsafe {
        libc::posix_spawn(&raw mut pid, program.as_ptr(), ptr::null(), ptr::null(), argv.as_ptr(), environ)
    };
    let took = began.elapsed();
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(error).into());
    }
    waitpid(Pid::from_raw(pid), WaitOptions::empty())?;
    Ok(took)
}
