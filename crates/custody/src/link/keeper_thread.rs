//! The host's thread that starts the keeper, listens to it, and replaces it when it dies.
//!
//! The thread lives as long as the run, because a keeper of the tier `namespace` dies with the thread that started it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::ledger::contents::LedgerContents;
use crate::ledger::record;
use crate::process::cgroup::Cgroup;
use crate::process::{identity, machine};
use crate::reap::reaper::{self, OtherReapers};
use crate::reap::report::announce;
use crate::reap::sweep::{self, DeadRun, sweep};
use crate::run::event::CustodyEvent;
use crate::run::shared_state::{KeeperState, RunInner, WorkerTable};
use crate::run::startup;
use crate::serve::exit::Exit;
use crate::state::{file_limit, write_records};
use crate::{CustodyOptions, LedgerSync, Pid, Session};

use super::keeper_link::{KeeperChild, KeeperLink};
use super::keeper_setup::KeeperSetup;
use super::wire::{KeeperInit, SpawnStage, ToHost, ToKeeper};

/// How long a new keeper may take until it serves.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a keeper may take to end once its socket is closed.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait between two attempts to replace a keeper or to clear what it left.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// How many times to inspect what a lost keeper left. An inspection fails, for example, if the host has no free
/// descriptor.
const MOST_LOOKS: usize = 25;

/// A keeper that is being started.
pub(crate) struct KeeperStart {
    answer: Receiver<Result<(), String>>,
}

/// Starts the thread that starts the keeper.
pub(crate) fn start(run: &Arc<RunInner>) -> Result<KeeperStart, String> {
    let (ready, answer) = sync_channel(1);
    let kept = Arc::clone(run);
    let thread = std::thread::Builder::new().name("snakepit-link".to_owned());
    thread.spawn(move || keep_one_serving(&kept, &ready)).map_err(|error| no_thread(&error))?;
    Ok(KeeperStart { answer })
}

impl KeeperStart {
    /// Waits until the keeper serves.
    pub(crate) fn wait(self) -> Result<(), String> {
        self.answer.recv().unwrap_or_else(|_| Err("the thread that starts it panicked".to_owned()))
    }
}

/// Starts the thread that looks for dead runs of other hosts, unless the interval is zero.
pub(crate) fn start_reaping(run: &Arc<RunInner>) -> Result<(), String> {
    if run.config.reap_interval.is_zero() {
        return Ok(());
    }
    let run = Arc::clone(run);
    let thread = std::thread::Builder::new().name("snakepit-reaper".to_owned());
    let started = thread.spawn(move || reap_periodically(&run));
    started.map(|_| ()).map_err(|error| no_thread(&error))
}

/// Returns what to do about a thread that the system refuses.
pub(crate) fn no_thread(error: &std::io::Error) -> String {
    format!("the host cannot start a thread: is the limit of threads (ulimit -u) reached?: {error}")
}

fn keep_one_serving(run: &Arc<RunInner>, ready: &SyncSender<Result<(), String>>) {
    match start_keeper(run) {
        Err(reason) => {
            let _ = ready.send(Err(reason));
            return;
        }
        Ok((link, child)) => {
            run.table().keeper = KeeperState::Serving(Arc::clone(&link));
            let _ = ready.send(Ok(()));
            listen_until_gone(run, &link, child);
        }
    }
    while keeper_lost(run) {
        match start_keeper(run) {
            Ok((link, child)) => {
                take_over(run, &link);
                listen_until_gone(run, &link, child);
            }
            Err(_) => {
                // The host may be out of processes or descriptors. Try again, but not in a tight loop.
                run.wait_table(RESTART_PAUSE, |table| !matches!(table.keeper, KeeperState::Awaited));
            }
        }
    }
}

/// Puts a successor into service. If the run was stopped meanwhile, the successor only finishes the run.
fn take_over(run: &RunInner, link: &Arc<KeeperLink>) {
    let mut table = run.table();
    match table.keeper {
        KeeperState::Awaited => {
            table.keeper = KeeperState::Serving(Arc::clone(link));
            drop(table);
            run.sink.emit(CustodyEvent::KeeperRegained);
            run.changed.notify_all();
        }
        KeeperState::Serving(_) | KeeperState::Closing(_) | KeeperState::Closed => {
            table.keeper = KeeperState::Closing(Some(Arc::clone(link)));
            drop(table);
            let _ = link.send(&ToKeeper::Finish.encode(), &[]);
        }
    }
}

/// Starts a keeper and waits until it serves.
fn start_keeper(run: &RunInner) -> Result<(Arc<KeeperLink>, KeeperChild), String> {
    let bytes = run.dir.read_ledger().map_err(|error| format!("cannot read the ledger: {error}"))?;
    let contents = LedgerContents::parse(&bytes.unwrap_or_default());
    let cgroup = run.cgroup.as_ref().map(Cgroup::open).transpose().map_err(|error| error.to_string())?;
    let setup = KeeperSetup {
        state: &run.state_dir,
        sink: &run.sink,
        run: run.id,
        dir: &run.dir,
        lock: std::os::fd::AsFd::as_fd(&run.lock),
        cgroup,
        #[cfg(portable)]
        poll_interval: run.config.poll_interval(),
        init: init(run, &run.config, contents.slots),
    };
    let (link, mut child) = KeeperLink::start(setup).map_err(|error| error.to_string())?;
    let answer = link.receive_within(START_TIMEOUT);
    if let Some(ToHost::Ready) = answer {
        return Ok((Arc::new(link), child));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(not_ready(answer.as_ref()))
}

/// Returns why a keeper that gave this answer does not serve.
pub(crate) fn not_ready(answer: Option<&ToHost>) -> String {
    match answer {
        Some(ToHost::Unable { stage, errno }) => {
            let error = file_limit::in_words(std::io::Error::from_raw_os_error(*errno));
            format!("it could not {}: {error}", attempt(*stage))
        }
        _ => "it ended before it was ready; look for a sandbox or a memory limit that kills it".to_owned(),
    }
}

/// Returns what a keeper that could not start was trying to do.
fn attempt(stage: SpawnStage) -> &'static str {
    match stage {
        SpawnStage::Ledger => "write to the ledger",
        SpawnStage::Session => "create its own session",
        SpawnStage::Request => "read the host's first message",
        _ => "get what it needs from the kernel",
    }
}

fn init(run: &RunInner, config: &CustodyOptions, next_slot: u64) -> KeeperInit {
    let failpoints = if cfg!(feature = "failpoints") {
        std::env::var("SNAKEPIT_FAILPOINTS").unwrap_or_default().into_bytes()
    } else {
        Vec::new()
    };
    KeeperInit {
        run: run.id.to_string().into_bytes(),
        tier: run.tier.into(),
        caller_session: config.session == Session::Caller,
        sync: config.ledger_sync == LedgerSync::Data,
        next_slot,
        boot: run.scope.boot,
        pidns: run.scope.pidns,
        pidfs: identity::own().is_ok_and(|host| host.pidfs != 0),
        clock_offset: machine::clock_offset().unwrap_or(0).cast_unsigned(),
        ignored: startup::ignored_signals(),
        blocked: startup::blocked_signals(),
        failpoints,
    }
}

/// Listens to the keeper for as long as it lives.
fn listen_until_gone(run: &RunInner, link: &KeeperLink, mut child: KeeperChild) {
    while let Some(message) = link.receive() {
        on_message(run, &message);
    }
    // The keeper closed its socket, so it is ending or has to end.
    if !link.ends_within(END_TIMEOUT) {
        link.signal(rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn on_message(run: &RunInner, message: &ToHost) {
    match *message {
        ToHost::Exit { key, end } => {
            let mut table = run.table();
            if let Some(spawning) = table.spawning.get_mut(&key) {
                spawning.early_exit = Some(end.into());
            } else if let Some(worker) = table.workers.remove(&key) {
                drop(table);
                run.ended(&worker, end.into());
            }
        }
        ToHost::Stopped { key, signal } => note_stop(run, key, Some(signal)),
        ToHost::Continued { key } => note_stop(run, key, None),
        ToHost::Escaped { pid } => {
            if let Some(pid) = Pid::new(pid) {
                run.sink.emit(CustodyEvent::EscapeCaught { pid });
            }
        }
        ToHost::Unkillable { key, pid } => {
            if let Some(pid) = Pid::new(pid) {
                run.note_unkillable(key, pid);
            }
        }
        ToHost::LedgerTrouble { errno } => run.sink.emit(CustodyEvent::LedgerTrouble { errno }),
        // These are always the first message, and `start_keeper` has handled it.
        ToHost::Ready | ToHost::Unable { .. } => {}
    }
}

/// Records that a worker was stopped by a signal or continued.
fn note_stop(run: &RunInner, key: u64, stopped: Option<i32>) {
    let mut table = run.table();
    if let Some(spawning) = table.spawning.get_mut(&key) {
        spawning.early_stop = stopped;
    } else if let Some(worker) = table.workers.get(&key).cloned() {
        drop(table);
        worker.set_halt(stopped);
        let worker = worker.id.clone();
        run.sink.emit(match stopped {
            Some(signal) => CustodyEvent::Stopped { worker, signal },
            None => CustodyEvent::Continued { worker },
        });
    }
}

/// Clears what a lost keeper left. Returns true if another keeper has to be started.
fn keeper_lost(run: &RunInner) -> bool {
    let (workers, link, closing) = {
        let mut table = run.table();
        let (link, closing) = match std::mem::replace(&mut table.keeper, KeeperState::Awaited) {
            KeeperState::Serving(link) => (Some(link), false),
            KeeperState::Awaited => (None, false),
            KeeperState::Closing(link) => (link, true),
            KeeperState::Closed => (None, true),
        };
        if closing {
            table.keeper = KeeperState::Closing(None);
        }
        // Spawns that still wait for an answer find their socket closed.
        table.spawning.clear();
        (std::mem::take(&mut table.workers), link, closing)
    };
    // A keeper that was ordered to finish removes the directory last.
    let finished = closing && matches!(run.dir.exists(), Ok(false));
    let mut nobody_left = true;
    if let Some(link) = link
        && !finished
    {
        if !closing {
            run.sink.emit(CustodyEvent::KeeperLost { workers: workers.len() });
        }
        let timeout = run.config.retry_interval() * run.config.cleanup_max_retries.max(10);
        link.all_gone_within(timeout);
        nobody_left = clear(run);
    }
    for worker in workers.into_values() {
        run.ended(&worker, Exit::LOST);
    }
    let open = {
        let mut table = run.table();
        match table.keeper {
            KeeperState::Awaited => true,
            KeeperState::Serving(_) | KeeperState::Closing(_) | KeeperState::Closed => {
                table.keeper = KeeperState::Closed;
                false
            }
        }
    };
    // If a process is left, the next reaper needs the records.
    if !open && nobody_left {
        run.forget();
    }
    run.changed.notify_all();
    open
}

/// Ends the processes that outlived keeper and shims, and records their ends. Returns whether no visible process is
/// left.
fn clear(run: &RunInner) -> bool {
    for _ in 0..MOST_LOOKS {
        match try_to_clear(run) {
            Ok(nobody_left) => return nobody_left,
            // Look again: a process that cannot be seen, for example for lack of descriptors, must not count as gone.
            Err(trouble) => {
                run.sink.emit(CustodyEvent::ReapTrouble { run: run.id.to_string(), trouble });
                run.wait_table(RESTART_PAUSE, |_| false);
            }
        }
    }
    false
}

/// Clears once. An error means that the look at some process failed.
fn try_to_clear(run: &RunInner) -> Result<bool, String> {
    let unreadable = |error: std::io::Error| format!("cannot inspect what the lost keeper left: {error}");
    let bytes = run.dir.read_ledger().map_err(unreadable)?;
    let contents = LedgerContents::parse(&bytes.unwrap_or_default());
    let recorded = contents.cgroup.as_ref().map(|record| Cgroup::recorded(&record.text, run.id));
    let cgroup = recorded.transpose().map_err(unreadable)?.flatten();
    let began = Instant::now();
    let dead = [DeadRun { id: run.id, contents: &contents, cgroup }];
    let swept = sweep(&dead, &run.config, began + sweep::LIMIT).into_iter().next().unwrap_or_default();
    if let (true, Some(trouble)) = (swept.survivors.is_empty(), swept.trouble) {
        return Err(trouble);
    }
    for let_be in &swept.let_be {
        run.sink.emit(CustodyEvent::ReapTrouble { run: run.id.to_string(), trouble: let_be.to_string() });
    }
    // Survivors stay in the ledger.
    let left: Vec<i32> = swept.survivors.iter().map(|survivor| survivor.pid.as_raw()).collect();
    let nobody_left = left.is_empty() && !swept.let_be.iter().any(|let_be| let_be.reason.is_doubt());
    run.note_survivors(swept.survivors, swept.killed.len(), began.elapsed());
    let ended = contents.living.into_values().filter(|record| !left.contains(&record.main.pid));
    let ends: Vec<_> =
        ended.map(|record| record::Record { kind: record::RecordKind::Exit, status: -1, ..record }).collect();
    let written = run.dir.ledger_for_writing().and_then(|file| write_records(&file, contents.slots, &ends));
    if let Err(error) = written {
        run.sink.emit(CustodyEvent::LedgerTrouble { errno: error.raw_os_error().unwrap_or(0) });
    }
    Ok(nobody_left)
}

/// Reaps dead runs of other hosts while this run lives.
fn reap_periodically(run: &RunInner) {
    let closing = |table: &WorkerTable| matches!(table.keeper, KeeperState::Closing(_) | KeeperState::Closed);
    while !run.wait_table(run.config.reap_interval, closing) {
        let own = Some(run.id);
        if let Ok(report) = reaper::reap(&run.state_dir, run.scope, &run.config, own, OtherReapers::LeaveTo) {
            announce(&report, &run.sink);
        }
    }
}
