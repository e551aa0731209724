//! Spawns hostile workers, which report when they are ready.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::PollFd;
use snakepit_custody::{Command, MAX_HANDED_FDS, Run, Stdio, WorkerProcess};
use snakepit_proving::Deadline;
use snakepit_proving::deadline::READABLE;

use crate::orders::OrderRefusal;

/// The descriptor on which a worker reports that it is ready.
const READY: RawFd = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// The program of the hostile workers, and the tag that they carry.
#[derive(Clone, Debug)]
pub(crate) struct HostileProgram {
    pub(crate) hostile: String,
    pub(crate) tag: String,
}

/// Returns a command without the host's pipes, because the test reads from those.
pub(crate) fn quiet(program: &str) -> Command {
    Command::new(program).stdin(Stdio::Null).stdout(Stdio::Null)
}

/// Returns a worker of a hostile kind, and the end of the pipe on which it reports.
pub(crate) fn hostile(hostile_program: &HostileProgram, kind: &[&str]) -> (Command, OwnedFd) {
    let (hear, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let (kind, args) = kind.split_first().expect("a kind");
    let command =
        quiet(&hostile_program.hostile).arg(kind).arg(&hostile_program.tag).arg(READY.to_string()).args(args);
    (command.fd(tell, READY), hear)
}

/// Spawns workers one after another, then waits until all are ready.
pub(crate) fn ready_workers(
    run: &Run,
    hostile_program: &HostileProgram,
    count: usize,
    kind: &[&str],
) -> Result<Vec<WorkerProcess>, OrderRefusal> {
    let mut spawned = Vec::new();
    for _ in 0..count {
        let (command, hear) = hostile(hostile_program, kind);
        spawned.push((run.spawn(command)?, hear));
    }
    for (worker, hear) in &spawned {
        await_ready(hear).map_err(|words| OrderRefusal::new(format!("{}: {words}", worker.id())))?;
    }
    Ok(spawned.into_iter().map(|(worker, _)| worker).collect())
}

/// Waits for the end of the stream, which comes when every process of the worker is set up. Fails if no process has
/// reported.
pub(crate) fn await_ready(hear: &OwnedFd) -> Result<(), String> {
    let deadline = Deadline::after(PATIENCE);
    let mut heard = 0;
    loop {
        if !deadline.readable(&mut [PollFd::new(hear, READABLE)]) {
            return Err("a process still holds the descriptor that reports readiness".to_owned());
        }
        match rustix::io::read(hear, &mut [0_u8; 512]) {
            Ok(0) if heard == 0 => return Err("ended before it was ready".to_owned()),
            Ok(0) => return Ok(()),
            Ok(count) => heard += count,
            Err(error) => return Err(format!("read: {error}")),
        }
    }
}

/// Spawns a worker that gets one descriptor at this number.
pub(crate) fn with_descriptor_at(
    run: &Run,
    hostile_program: &HostileProgram,
    target: RawFd,
    kind: &[&str],
) -> Result<WorkerProcess, OrderRefusal> {
    let (command, hear) = hostile(hostile_program, kind);
    let null = fs::File::open("/dev/null").expect("/dev/null");
    let worker = run.spawn(command.fd(null, target))?;
    await_ready(&hear).map_err(OrderRefusal::new)?;
    Ok(worker)
}

/// Spawns a worker that gets a copy of every descriptor of this process, including those of the keeper.
pub(crate) fn with_every_descriptor(
    run: &Run,
    hostile_program: &HostileProgram,
    kind: &[&str],
) -> Result<(WorkerProcess, usize), OrderRefusal> {
    let (mut command, hear) = hostile(hostile_program, kind);
    let mut handed = 0;
    let link = |number: RawFd| fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let telling = link(hear.as_raw_fd());
    for entry in fs::read_dir("/proc/self/fd").expect("/proc/self/fd") {
        let name = entry.expect("a descriptor").file_name();
        let number: RawFd = name.to_str().and_then(|text| text.parse().ok()).expect("a number");
        // Leaves out the pipe on which the worker reports that it is ready, because this function waits for its end.
        if link(number) == telling {
            continue;
        }
        // SAFETY: the descriptor is borrowed only to be copied. If it was closed meanwhile, the copy fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(borrowed, 10) else { continue };
        if handed < MAX_HANDED_FDS - 1 {
            command = command.fd(copy, READY + 1 + handed as RawFd);
            handed += 1;
        }
    }
    let worker = run.spawn(command)?;
    await_ready(&hear).map_err(OrderRefusal::new)?;
    Ok((worker, handed))
}
