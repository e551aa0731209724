//! Converts events of custody, which is below this crate and does not know the catalog, to events of the catalog.

use std::fmt::Display;
use std::sync::Arc;

use super::{Event, Level, emit_with};
use snakepit_custody::{CustodyEvent, ExitStatus, Pid, RunId, WorkerId, listen};

/// Starts to deliver the events of all runs of this process.
pub fn hear_custody() {
    // `false` means that this was done before.
    let _ = listen(tell);
}

fn tell(run: RunId, event: &CustodyEvent) {
    // Every listener gets warnings, so this asks for any listener. The event itself has the right level.
    emit_with(Level::Warn, || event_of(text(&run), event));
}

fn text(shown: &(impl Display + ?Sized)) -> Arc<str> {
    shown.to_string().into()
}

/// Returns the exit code or the signal that ended a process, as fields of an event contain them.
pub fn code_and_signal(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    match status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
        ExitStatus::Lost | ExitStatus::ShimKilled => (None, None),
    }
}

/// Returns a process id as a field of an event contains it.
pub fn pid_number(pid: Pid) -> u32 {
    pid.as_raw().unsigned_abs()
}

/// Returns the scope of a cleanup.
fn scope_of(worker: Option<&WorkerId>) -> &'static str {
    if worker.is_some() { "worker" } else { "run" }
}

pub(crate) fn event_of(run: Arc<str>, event: &CustodyEvent) -> Event {
    match event {
        CustodyEvent::Spawned { worker, pid: process } => {
            Event::WorkerSpawn { run, worker: text(worker), pid: pid_number(*process) }
        }
        CustodyEvent::Exited { worker, exit } => {
            let (code, signal) = code_and_signal(exit.status);
            Event::WorkerExit { run, worker: text(worker), code, signal, max_rss_kib: exit.max_rss_kib }
        }
        CustodyEvent::Stopped { worker, signal } => {
            Event::WorkerStopped { run, worker: text(worker), signal: *signal }
        }
        CustodyEvent::Continued { worker } => Event::WorkerContinued { run, worker: text(worker) },
        CustodyEvent::CleanupStart { worker, workers } => Event::CleanupStart {
            run_id: run,
            scope: scope_of(worker.as_ref()),
            worker: worker.as_ref().map(text),
            workers: *workers,
        },
        CustodyEvent::CleanupSuccess { worker, workers, killed, took } => Event::CleanupSuccess {
            run_id: run,
            scope: scope_of(worker.as_ref()),
            worker: worker.as_ref().map(text),
            workers: *workers,
            killed: *killed,
            took: *took,
        },
        CustodyEvent::CleanupTimeout { worker, killed, survivors, took } => {
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
        CustodyEvent::Reaped { run: dead, killed } => {
            Event::Reap { run, dead_run: text(dead), killed: killed.len() }
        }
        CustodyEvent::ReapTrouble { run: dead, trouble } => {
            Event::ReapTrouble { run, dead_run: text(dead), trouble: text(trouble) }
        }
        CustodyEvent::EscapeCaught { pid: process } => Event::EscapeCaught { run, pid: pid_number(*process) },
        CustodyEvent::Unkillable { worker, pid: process } => {
            Event::Unkillable { run, worker: worker.as_ref().map(text), pid: pid_number(*process) }
        }
        CustodyEvent::KeeperLost { workers } => Event::KeeperLost { run, workers: *workers },
        CustodyEvent::KeeperRegained => Event::KeeperRegained { run },
        CustodyEvent::FileDamaged { path, trouble } => {
            let trouble = trouble.as_ref().map(text);
            Event::FileDamaged { path: text(&path.display()), trouble }
        }
        CustodyEvent::LedgerTrouble { errno } => Event::LedgerTrouble { run, errno: *errno },
    }
}
