//! The start of a shim: its setup, and the process that it creates at the gate.

use std::cell::OnceCell;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::failpoint::hit;
use crate::identity::has_ended;
use crate::keeper::StageError;
use crate::kill::cgroup::WorkerCgroup;
use crate::sys::{self, PollFd};
use crate::wire::{SpawnStage, WireTier};

use super::launch::{InheritedSignals, LaunchContext, OOM_SCORE_ADJ, wait_and_launch};
use super::messages::FromShim;
use super::namespace::enter_namespace;
use super::watch::Shim;

/// The run's descriptors that a shim keeps for its whole life.
pub(crate) struct RunDescriptors {
    pub(crate) host: OwnedFd,
    pub(crate) keeper: OwnedFd,
    /// Held only for its lock: the run is not over while a shim lives.
    pub(crate) lock: OwnedFd,
    /// Only held open, so that its reader sees when the last holder has ended.
    pub(crate) liveness: OwnedFd,
}

/// The parameters of a new shim.
pub(crate) struct ShimOptions<'a> {
    /// Counted from 1 during the keeper's life.
    pub(crate) serial: u64,
    pub(crate) tier: WireTier,
    pub(crate) user_namespace: bool,
    pub(crate) caller_session: bool,
    pub(crate) signals: InheritedSignals,
    pub(crate) nofile: (u64, u64),
    pub(crate) descriptors: &'a RunDescriptors,
    /// The run's cgroup.
    pub(crate) cgroup: Option<RawFd>,
    pub(crate) socket: OwnedFd,
    pub(crate) user: (u32, u32),
}

/// Runs a shim, from just after the clone to its end.
pub(crate) fn run(options: ShimOptions<'_>, gate: OwnedFd) -> ! {
    sys::set_name(c"snakepit-shim");
    match start(&options, gate) {
        Ok(StartedShim { worker, child_signals, cgroup }) => {
            let ShimOptions { tier, descriptors, socket, serial, .. } = options;
            let _ = hit("shim.running", serial);
            Shim { tier, worker, socket, descriptors, child_signals, cgroup }.watch()
        }
        Err((stage, error)) => {
            let failed = FromShim::Failed { stage, errno: sys::errno(&error) };
            let _ = send_to_keeper(options.socket.as_raw_fd(), &failed, &[]);
            sys::exit(1)
        }
    }
}

/// Sends a message to the keeper. A full socket means that the keeper is stopped. It learns the rest from the shim's
/// end.
pub(crate) fn send_to_keeper(socket: RawFd, message: &FromShim, fds: &[RawFd]) -> Result<()> {
    sys::send(socket, &message.encode(), fds)
}

/// What a shim has once its worker runs.
struct StartedShim {
    worker: i32,
    child_signals: OwnedFd,
    cgroup: Option<WorkerCgroup>,
}

/// Starts the worker. Returns when the worker runs its program or has ended. Until then, the process at the gate uses
/// the shim's memory.
fn start(options: &ShimOptions<'_>, gate: OwnedFd) -> std::result::Result<StartedShim, StageError> {
    let setup = |error| (SpawnStage::ShimSetup, error);
    let serial = options.serial;
    let descriptors = options.descriptors;
    let mut keep: Vec<RawFd> =
        [&descriptors.host, &descriptors.keeper, &descriptors.lock, &descriptors.liveness]
            .into_iter()
            .chain([&options.socket, &gate])
            .map(AsRawFd::as_raw_fd)
            .chain(options.cgroup)
            .collect();
    // This must come before any call that could block, because the shim must not hold the gate of another shim open.
    sys::close_all_except(&mut keep).map_err(setup)?;
    hit("shim.start", serial).map_err(setup)?;
    match options.tier {
        WireTier::Namespace => {
            // KILL reaches stopped processes too, so the chain holds even if all of them are stopped.
            sys::die_with_parent().map_err(setup)?;
            enter_namespace(options.user_namespace, options.user)?;
        }
        WireTier::Shim | WireTier::Group => sys::become_subreaper().map_err(setup)?,
    }
    if has_ended(&descriptors.keeper) || has_ended(&descriptors.host) {
        sys::exit(1);
    }
    sys::new_group().map_err(setup)?;
    hit("shim.setup", serial).map_err(setup)?;
    let child_signals = sys::child_signal_fd().map_err(setup)?;
    let cgroup = options.cgroup.and_then(|run| WorkerCgroup::make(run, serial));
    let cloning = |error| (SpawnStage::CloneWorker, error);
    // exec closes the other end. Once this end reads end-of-file, the child no longer uses the shim's memory.
    let (returned, loan) = sys::packet_pair().map_err(cloning)?;
    let context = LaunchContext {
        serial,
        signals: options.signals,
        caller_session: options.caller_session,
        nofile: options.nofile,
        shim: sys::pid(),
        socket: options.socket.as_raw_fd(),
        gate: gate.as_raw_fd(),
        loan: loan.as_raw_fd(),
        cgroups: [cgroup.as_ref().map(|cgroup| cgroup.dir.as_raw_fd()), options.cgroup],
        large_orders: OnceCell::new(),
        oom_score: OnceCell::new(),
    };
    hit("shim.clone_worker", serial).map_err(cloning)?;
    let borrower = sys::lend_memory_to(wait_and_launch, &context).map_err(cloning)?;
    // From here on, only the process at the gate holds its end of the gate, so the keeper sees at once when that
    // process is gone.
    drop((loan, gate));
    await_return(borrower.pid, &returned, descriptors);
    let worker = borrower.returned();
    if let Some(own) = context.oom_score.get() {
        let _ = std::fs::write(OOM_SCORE_ADJ, own);
    }
    Ok(StartedShim { worker, child_signals, cgroup })
}

/// Waits until the process at the gate runs its program or has ended. Kills that process if host or keeper are gone.
/// Allocates nothing: see [`sys::lend_memory_to`].
fn await_return(borrower: i32, returned: &OwnedFd, descriptors: &RunDescriptors) {
    let watched = [returned, &descriptors.host, &descriptors.keeper];
    let mut fds = watched.map(|fd| PollFd { fd: fd.as_raw_fd(), events: sys::POLLIN, revents: 0 });
    let mut watch: &mut [PollFd] = &mut fds;
    loop {
        let _ = sys::poll_any(watch, -1);
        if watch[0].revents != 0 {
            return;
        }
        let _ = sys::send_signal(borrower, sys::SIGKILL);
        watch = &mut watch[..1];
    }
}
