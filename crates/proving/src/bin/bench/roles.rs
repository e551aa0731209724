//! The processes that the benchmark starts from its own program: hosts that use custody.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use snakepit_custody::{Command, Config, Containment, Run, Stdio};

use crate::Outcome;
use crate::kill::WORKER;

/// Plays the part that the arguments name, if they name one.
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

/// A run in the given tier with a state directory of its own.
pub(crate) fn open(tier: &str, state: &Path) -> Outcome<Run> {
    let containment = match tier {
        "auto" => Containment::Auto,
        "namespace" => Containment::Namespace,
        "shim" => Containment::Shim,
        "group" => Containment::Group,
        _ => return Err(format!("unknown tier {tier}").into()),
    };
    let config = Config { containment, state_dir: Some(state.to_owned()), ..Config::default() };
    Ok(Run::open(config)?)
}

/// Whether the tier can be had on this machine, and if not, why.
pub(crate) fn available(tier: &str) -> Result<(), String> {
    let probe = snakepit_custody::probe();
    probe.tiers.into_iter().find(|(it, _)| it.name() == tier).map_or(Ok(()), |(_, answer)| answer)
}

/// Ends a run; a survivor is an error.
pub(crate) fn stop(run: &Run) -> Outcome<()> {
    let report = run.stop();
    if report.survivors.is_empty() {
        Ok(())
    } else {
        Err(format!("survivors: {:?}", report.survivors).into())
    }
}

/// A worker that waits to be killed.
pub(crate) fn idle_worker() -> Command {
    Command::new(WORKER[0]).args(&WORKER[1..]).stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null)
}

/// A host with workers, which says `ready` and waits to be killed.
fn host(tier: &str, workers: &str, state: &Path) -> Outcome<()> {
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

/// The same host without custody: it starts the floor and waits to be killed.
fn plain_host(program: &[&str]) -> Outcome<()> {
    // The floor says `ready`, and dies with this thread.
    let _floor = std::process::Command::new(program[0]).args(&program[1..]).spawn()?;
    loop {
        std::thread::park();
    }
}

/// A host that holds so much memory and, for each line `custody` or `fork`, starts `/bin/true` and answers
/// with the nanoseconds until it ran.
fn spawner(mebibytes: &str, state: &Path) -> Outcome<()> {
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

pub(crate) fn spawn_once(run: &Run) -> Outcome<Duration> {
    let command = Command::new("/bin/true");
    let began = Instant::now();
    let worker = run.spawn(command)?;
    let took = began.elapsed();
    worker.wait();
    Ok(took)
}

/// What a host does that needs something done between fork and exec and has no keeper.
fn fork_once() -> Outcome<Duration> {
    let mut command = std::process::Command::new("/bin/true");
    // SAFETY: the closure does nothing; it is there because its presence makes std fork.
    unsafe { command.pre_exec(|| Ok(())) };
    let began = Instant::now();
    let mut child = command.spawn()?;
    let took = began.elapsed();
    child.wait()?;
    Ok(took)
}
