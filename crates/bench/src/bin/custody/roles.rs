//! The hosts that the benchmark starts from its own program.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use snakepit_custody::{Command, Containment, CustodyOptions, Run, Stdio};

use crate::BenchResult;
use crate::kill::WORKER;

/// Plays the role that the arguments name, if they name one.
pub(crate) fn play(args: &[String]) -> Option<ExitCode> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let played = match args.as_slice() {
        ["host", tier, workers, state] => host(tier, workers, Path::new(state)),
        ["plain-host", program @ ..] => plain_host(program),
        ["spawner", mebibytes, state] => spawner(mebibytes, Path::new(state)),
        _ => return None,
    };
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench {}: {error}", args[0]);
            ExitCode::FAILURE
        }
    })
}

/// Opens a run in the given tier with its own state directory.
pub(crate) fn open(tier: &str, state: &Path) -> BenchResult<Run> {
    let containment = match tier {
        "auto" => Containment::Auto,
        "namespace" => Containment::Namespace,
        "shim" => Containment::Shim,
        "group" => Containment::Group,
        _ => return Err(format!("unknown tier {tier}").into()),
    };
    let config = CustodyOptions::default().containment(containment).state_dir(state);
    Ok(Run::open(config)?)
}

/// Checks whether this machine supports the tier. The error says why not.
pub(crate) fn available(tier: &str) -> Result<(), String> {
    let probe = snakepit_custody::probe();
    probe.tiers.into_iter().find(|found| found.tier.name() == tier).map_or(Ok(()), |found| found.works)
}

/// Ends a run. A survivor is an error.
pub(crate) fn stop(run: &Run) -> BenchResult<()> {
    let report = run.stop();
    if report.survivors.is_empty() {
        Ok(())
    } else {
        Err(format!("survivors: {:?}", report.survivors).into())
    }
}

/// Returns a worker that waits to be killed.
pub(crate) fn idle_worker() -> Command {
    Command::new(WORKER[0]).args(&WORKER[1..]).stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null)
}

/// Plays a host with workers, which prints `ready` and waits to be killed.
fn host(tier: &str, workers: &str, state: &Path) -> BenchResult<()> {
    let run = open(tier, state)?;
    for _ in 0..workers.parse()? {
        run.spawn(idle_worker())?;
    }
    println!("ready");
    io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// Plays the same host without custody: it starts the floor and waits to be killed.
fn plain_host(program: &[&str]) -> BenchResult<()> {
    // The floor prints `ready` and dies with this thread.
    let _floor = std::process::Command::new(program[0]).args(&program[1..]).spawn()?;
    loop {
        std::thread::park();
    }
}

/// Plays a host that holds `mebibytes` of memory. For each line `custody` or `fork` it starts `/bin/true`, and answers
/// with the nanoseconds until the program ran.
fn spawner(mebibytes: &str, state: &Path) -> BenchResult<()> {
    let held = vec![1_u8; mebibytes.parse::<usize>()? << 20];
    std::hint::black_box(&held);
    let run = open("shim", state)?;
    println!("ready");
    for line in io::stdin().lock().lines() {
        let took = match line?.as_str() {
            "custody" => spawn_once(&run)?,
            "fork" => fork_once()?,
            other => return Err(format!("unknown way {other}").into()),
        };
        println!("{}", took.as_nanos());
    }
    std::hint::black_box(&held);
    stop(&run)?;
    Ok(())
}

pub(crate) fn spawn_once(run: &Run) -> BenchResult<Duration> {
    let command = Command::new("/bin/true");
    let began = Instant::now();
    let worker = run.spawn(command)?;
    let took = began.elapsed();
    worker.wait();
    Ok(took)
}

/// Spawns like a host that has no keeper and needs code between fork and exec.
fn fork_once() -> BenchResult<Duration> {
    let mut command = std::process::Command::new("/bin/true");
    // SAFETY: the closure does nothing. Its presence makes std fork.
    unsafe { command.pre_exec(|| Ok(())) };
    let began = Instant::now();
    let mut child = command.spawn()?;
    let took = began.elapsed();
    child.wait()?;
    Ok(took)
}
