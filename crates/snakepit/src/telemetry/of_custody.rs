//! What custody tells about itself, as events of the catalog.

use std::fmt::Display;
use std::sync::Arc;

use super::{Event, Level, emit, is_heard};
use crate::custody::{self, ExitStatus, Pid, RunId};

/// Has the events of all runs of this process delivered, from now on.
pub(crate) fn hear_custody() {
    // False says that it was asked for before.
    let _ = custody::listen(tell);
}

fn tell(run: RunId, event: &custody::Event) {
    // The loudest that it can be: whether its fields make it a warning is seen once it is made.
    let loudest = match event.level() {
        custody::Level::Warning => Level::Warn,
        custody::Level::Quiet => Level::Info,
    };
    if is_heard(loudest)
        && let Some(event) = event_of(text(&run), event)
    {
        emit(event);
    }
}

fn text(shown: &(impl Display + ?Sized)) -> Arc<str> {
    shown.to_string().into()
}

pub(super) fn code_and_signal(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    match status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
        ExitStatus::Lost | ExitStatus::ShimKilled => (None, None),
    }
}

pub(super) fn pid(pid: Pid) -> u32 {
    pid.as_raw().unsigned_abs()
}

/// Whom a barrier is for.
fn scope_of(worker: Option<&custody::WorkerId>) -> &'static str {
    if worker.is_some() { "worker" } else { "run" }
}

/// None: custody has an event that the catalog does not know.
pub(super) fn event_of(run: Arc<str>, event: &custody::Event) -> Option<Event> {
    use custody::Event as Its;
    Some(match event {
        Its::Spawned { worker, pid: process } => {
            Event::WorkerSpawn { run, worker: text(worker), pid: pid(*process) }
        }
        Its::Exited { worker, exit } => {
            let (code, signal) = code_and_signal(exit.status);
            Event::WorkerExit { run, worker: text(worker), code, signal, max_rss_kib: exit.max_rss_kib }
        }
        Its::Stopped { worker, signal } => {
            Event::WorkerStopped { run, worker: text(worker), signal: *signal }
        }
        Its::Continued { worker } => Event::WorkerContinued { run, worker: text(worker) },
        Its::CleanupStart { worker, workers } => Event::CleanupStart {
            run_id: run,
            scope: scope_of(worker.as_ref()),
            worker: worker.as_ref().map(text),
            workers: *workers,
        },
        Its::CleanupSuccess { worker, workers, killed, took } => Event::CleanupSuccess {
            run_id: run,
            scope: scope_of(worker.as_ref()),
            worker: worker.as_ref().map(text),
            workers: *workers,
            killed: *killed,
            took: *took,
        },
        Its::CleanupTimeout { worker, killed, survivors, took } => {
            let who: Vec<String> = survivors.iter().map(ToString::to_string).collect();
            Event::CleanupTimeout {
                run_id: run,
                scope: scope_of(worker.as_ref()),
                worker: worker.as_ref().map(text),
                survivors: survivors.len(),
                who: text(&who.join("; ")),
                killed: *killed,
                took: *took,
            }
        }
        Its::Reaped { run: dead, killed } => Event::Reap { run, dead_run: text(dead), killed: killed.len() },
        Its::ReapTrouble { run: dead, trouble } => {
            Event::ReapTrouble { run, dead_run: text(dead), trouble: text(trouble) }
        }
        Its::EscapeCaught { pid: process } => Event::EscapeCaught { run, pid: pid(*process) },
        Its::Unkillable { worker, pid: process } => {
            Event::Unkillable { run, worker: worker.as_ref().map(text), pid: pid(*process) }
        }
        Its::KeeperLost { workers } => Event::KeeperLost { run, workers: *workers },
        Its::KeeperRegained => Event::KeeperRegained { run },
        Its::FileDamaged { path, trouble } => {
            let trouble = trouble.as_ref().map(text);
            Event::FileDamaged { path: text(&path.display()), trouble }
        }
        Its::LedgerTrouble { errno } => Event::LedgerTrouble { run, errno: *errno },
        _ => return None,
    })
}
