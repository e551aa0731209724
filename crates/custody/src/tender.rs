//! The tender: the host thread that starts the keeper, hears it, and replaces it when it dies.
//!
//! It lives as long as the run, because a keeper of the namespace tier dies with the thread that made it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::cgroup::Cgroup;
use crate::event::Event;
use crate::ledger::{self, Contents, record};
use crate::link::{Child, Link, Outfit};
use crate::reaper::Others;
use crate::run::{Inner, Keeper, Table};
use crate::sweep::{self, DeadRun, sweep};
use crate::wire::{Init, Stage, ToHost, ToKeeper};
use crate::worker::Exit;
use crate::{Config, LedgerSync, Pid, Session, file_limit, identity, machine, reaper, startup};

/// How long a new keeper may take until it serves.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How long a keeper may take to end once its socket is closed.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait between two attempts to replace a keeper, or to see to what it left.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// How often what a lost keeper left is looked at, if it cannot be: out of descriptors, perhaps.
const MOST_LOOKS: usize = 25;

/// A keeper that is being started.
pub(crate) struct Starting {
    answer: Receiver<Result<(), String>>,
}

/// Starts the thread that starts the keeper.
pub(crate) fn start(run: &Arc<Inner>) -> Result<Starting, String> {
    let (ready, answer) = sync_channel(1);
    let tended = Arc::clone(run);
    let thread = std::thread::Builder::new().name("snakepit-tender".to_owned());
    thread.spawn(move || tend(&tended, &ready)).map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Starting { answer })
}

impl Starting {
    /// Waits until the keeper serves.
    pub(crate) fn wait(self) -> Result<(), String> {
        self.answer.recv().unwrap_or_else(|_| Err("its thread died".to_owned()))
    }
}

/// Starts the thread that looks for dead runs of other hosts, if that is wanted.
pub(crate) fn start_reaping(run: &Arc<Inner>) -> Result<(), String> {
    if run.config.reap_interval.is_zero() {
        return Ok(());
    }
    let run = Arc::clone(run);
    let thread = std::thread::Builder::new().name("snakepit-reaper".to_owned());
    let started = thread.spawn(move || reap_now_and_then(&run));
    started.map(|_| ()).map_err(|error| format!("cannot start a thread: {error}"))
}

fn tend(run: &Arc<Inner>, ready: &SyncSender<Result<(), String>>) {
    match start_keeper(run) {
        Err(reason) => {
            let _ = ready.send(Err(reason));
            return;
        }
        Ok((link, child)) => {
            run.table().keeper = Keeper::Serving(Arc::clone(&link));
            let _ = ready.send(Ok(()));
            hear_until_gone(run, &link, child);
        }
    }
    while keeper_lost(run) {
        match start_keeper(run) {
            Ok((link, child)) => {
                take_over(run, &link);
                hear_until_gone(run, &link, child);
            }
            Err(_) => {
                // Out of processes or descriptors perhaps: again, but not in a tight loop.
                run.wait_table(RESTART_PAUSE, |table| !matches!(table.keeper, Keeper::Awaited));
            }
        }
    }
}

/// A successor serves; unless the run was stopped meanwhile: then it has only the end to see to.
fn take_over(run: &Inner, link: &Arc<Link>) {
    let mut table = run.table();
    match table.keeper {
        Keeper::Awaited => {
            table.keeper = Keeper::Serving(Arc::clone(link));
            drop(table);
            run.sink.emit(Event::KeeperRegained);
            run.changed.notify_all();
        }
        Keeper::Serving(_) | Keeper::Closing(_) | Keeper::Closed => {
            table.keeper = Keeper::Closing(Some(Arc::clone(link)));
            drop(table);
            let _ = link.send(&ToKeeper::Finish.encode(), &[]);
        }
    }
}

/// Starts a keeper and waits until it serves.
fn start_keeper(run: &Inner) -> Result<(Arc<Link>, Child), String> {
    let bytes = run.dir.read_ledger().map_err(|error| format!("cannot read the ledger: {error}"))?;
    let contents = Contents::parse(&bytes.unwrap_or_default());
    let cgroup = run.cgroup.as_ref().map(Cgroup::open).transpose().map_err(|error| error.to_string())?;
    let outfit = Outfit {
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
    let (link, mut child) = Link::start(outfit).map_err(|error| error.to_string())?;
    let answer = link.receive_within(START_PATIENCE);
    if let Some(ToHost::Ready) = answer {
        return Ok((Arc::new(link), child));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(match answer {
        Some(ToHost::Unable { stage, errno }) => {
            let error = file_limit::in_words(std::io::Error::from_raw_os_error(errno));
            format!("it could not {}: {error}", attempt(stage))
        }
        _ => "it ended before it was ready".to_owned(),
    })
}

/// What a keeper that could not start has tried.
fn attempt(stage: Stage) -> &'static str {
    match stage {
        Stage::Ledger => "write to the ledger",
        Stage::Session => "make a session of its own",
        Stage::Request => "read what the host asks for",
        _ => "have of the kernel what it needs",
    }
}

fn init(run: &Inner, config: &Config, next_slot: u64) -> Init {
    let failpoints = if cfg!(feature = "failpoints") {
        std::env::var("SNAKEPIT_FAILPOINTS").unwrap_or_default().into_bytes()
    } else {
        Vec::new()
    };
    Init {
        run: run.id.to_string().into_bytes(),
        tier: run.tier.into(),
        caller_session: config.session == Session::Caller,
        sync: config.ledger_sync == LedgerSync::Data,
        next_slot,
        boot: run.place.boot,
        pidns: run.place.pidns,
        pidfs: identity::own().is_ok_and(|host| host.pidfs != 0),
        clock_offset: machine::clock_offset().unwrap_or(0).cast_unsigned(),
        ignored: startup::ignored_signals(),
        blocked: startup::blocked_signals(),
        failpoints,
    }
}

/// Hears the keeper for as long as it lives.
fn hear_until_gone(run: &Inner, link: &Link, mut child: Child) {
    while let Some(message) = link.receive() {
        hear(run, &message);
    }
    // Its socket is closed: it is ending, or must.
    if !link.ends_within(END_PATIENCE) {
        link.signal(rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn hear(run: &Inner, message: &ToHost) {
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
                run.sink.emit(Event::EscapeCaught { pid });
            }
        }
        ToHost::Unkillable { key, pid } => {
            if let Some(pid) = Pid::new(pid) {
                run.note_unkillable(key, pid);
            }
        }
        ToHost::LedgerTrouble { errno } => run.sink.emit(Event::LedgerTrouble { errno }),
        // Only ever the first message, which `start_keeper` has taken.
        ToHost::Ready | ToHost::Unable { .. } => {}
    }
}

/// A worker was stopped by a signal, or goes on.
fn note_stop(run: &Inner, key: u64, stopped: Option<i32>) {
    let mut table = run.table();
    if let Some(spawning) = table.spawning.get_mut(&key) {
        spawning.early_stop = stopped;
    } else if let Some(worker) = table.workers.get(&key).cloned() {
        drop(table);
        worker.set_halt(stopped);
        let worker = worker.id.clone();
        run.sink.emit(match stopped {
            Some(signal) => Event::Stopped { worker, signal },
            None => Event::Continued { worker },
        });
    }
}

/// The keeper is gone. Sees to it that everything else is, too; true if another one shall be started.
fn keeper_lost(run: &Inner) -> bool {
    let (workers, link, closing) = {
        let mut table = run.table();
        let (link, closing) = match std::mem::replace(&mut table.keeper, Keeper::Awaited) {
            Keeper::Serving(link) => (Some(link), false),
            Keeper::Awaited => (None, false),
            Keeper::Closing(link) => (link, true),
            Keeper::Closed => (None, true),
        };
        if closing {
            table.keeper = Keeper::Closing(None);
        }
        // Whoever still waits for an answer finds the socket closed.
        table.spawning.clear();
        (std::mem::take(&mut table.workers), link, closing)
    };
    // A keeper that was told to finish has removed the directory as its last act.
    let finished = closing && matches!(run.dir.exists(), Ok(false));
    let mut nobody_left = true;
    if let Some(link) = link
        && !finished
    {
        if !closing {
            run.sink.emit(Event::KeeperLost { workers: workers.len() });
        }
        let patience = run.config.retry_interval() * run.config.cleanup_max_retries.max(10);
        link.all_gone_within(patience);
        nobody_left = clear(run);
    }
    for worker in workers.into_values() {
        run.ended(&worker, Exit::LOST);
    }
    let open = {
        let mut table = run.table();
        match table.keeper {
            Keeper::Awaited => true,
            Keeper::Serving(_) | Keeper::Closing(_) | Keeper::Closed => {
                table.keeper = Keeper::Closed;
                false
            }
        }
    };
    // Otherwise the next start's reaper needs the records.
    if !open && nobody_left {
        run.forget();
    }
    run.changed.notify_all();
    open
}

/// Ends whoever outlived keeper and shims, and writes their ends into the ledger. Whether nobody is left, as far as
/// there is anything to see.
fn clear(run: &Inner) -> bool {
    for _ in 0..MOST_LOOKS {
        match try_to_clear(run) {
            Ok(nobody_left) => return nobody_left,
            // Again: whoever looks without descriptors, for example, must not take what it does not see for gone.
            Err(trouble) => {
                run.sink.emit(Event::ReapTrouble { run: run.id.to_string(), trouble });
                run.wait_table(RESTART_PAUSE, |_| false);
            }
        }
    }
    false
}

/// Looks for them once; an error is one of looking.
fn try_to_clear(run: &Inner) -> Result<bool, String> {
    let unreadable =
        |error: std::io::Error| format!("what its lost keeper has left cannot be looked at: {error}");
    let bytes = run.dir.read_ledger().map_err(unreadable)?;
    let contents = Contents::parse(&bytes.unwrap_or_default());
    let recorded = contents.cgroup.as_ref().map(|record| Cgroup::recorded(&record.text, run.id));
    let cgroup = recorded.transpose().map_err(unreadable)?.flatten();
    let began = Instant::now();
    let dead = [DeadRun { id: run.id, contents: &contents, cgroup }];
    let swept = sweep(&dead, &run.config, began + sweep::LIMIT).into_iter().next().unwrap_or_default();
    if let (true, Some(trouble)) = (swept.survivors.is_empty(), swept.trouble) {
        return Err(trouble);
    }
    for let_be in &swept.let_be {
        run.sink.emit(Event::ReapTrouble { run: run.id.to_string(), trouble: let_be.to_string() });
    }
    // Those who are left stay on record.
    let left: Vec<i32> = swept.survivors.iter().map(|survivor| survivor.pid.as_raw()).collect();
    let nobody_left = left.is_empty() && !swept.let_be.iter().any(|let_be| let_be.reason.is_doubt());
    run.note_survivors(swept.survivors, swept.killed.len(), began.elapsed());
    let ended = contents.living.into_values().filter(|record| !left.contains(&record.main.pid));
    let ends: Vec<_> =
        ended.map(|record| record::Record { kind: record::Kind::Exit, status: -1, ..record }).collect();
    let written =
        run.dir.ledger_for_writing().and_then(|file| ledger::write_from(&file, contents.slots, &ends));
    if let Err(error) = written {
        run.sink.emit(Event::LedgerTrouble { errno: error.raw_os_error().unwrap_or(0) });
    }
    Ok(nobody_left)
}

/// Dead runs of other hosts are reaped during normal operation too.
fn reap_now_and_then(run: &Inner) {
    let closing = |table: &Table| matches!(table.keeper, Keeper::Closing(_) | Keeper::Closed);
    while !run.wait_table(run.config.reap_interval, closing) {
        let own = Some(run.id);
        if let Ok(report) = reaper::reap(&run.state_dir, run.place, &run.config, own, Others::LeaveTo) {
            reaper::announce(&report, &run.sink);
        }
    }
}
