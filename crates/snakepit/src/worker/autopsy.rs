//! What is known about a worker's death.

use std::fmt;
use std::time::Duration;

use crate::custody::{Exit, ExitStatus, Pid, WorkerId};

/// What is known about a worker's death.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Autopsy {
    /// The worker.
    pub worker: WorkerId,
    /// Its process, if it was one.
    pub pid: Option<Pid>,
    /// How its process ended, if that could be seen in time.
    pub exit: Option<Exit>,
    /// Why we ended it, if we did.
    pub fault: Option<String>,
    /// How long it had served.
    pub age: Duration,
    /// How many calls it had been given.
    pub calls: u64,
    /// What it printed last, Python's own account of a crash included.
    pub output: Vec<String>,
}

impl fmt::Display for Autopsy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.worker)?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        match (&self.fault, self.exit.map(|exit| exit.status)) {
            (Some(fault), _) => write!(f, " was ended: {fault}")?,
            (None, Some(ExitStatus::Code(code))) => write!(f, " exited with status {code}")?,
            (None, Some(ExitStatus::Signal(signal))) => write!(f, " died of {}", signal_name(signal))?,
            (None, Some(ExitStatus::Lost)) => write!(f, " died with its keeper")?,
            (None, None) => write!(f, " is gone")?,
        }
        write!(f, " after {} calls", self.calls)?;
        if let Some(exit) = self.exit.filter(|exit| exit.max_rss_kib > 0) {
            write!(f, ", at most {} MiB resident", exit.max_rss_kib / 1024)?;
        }
        if !self.output.is_empty() {
            write!(f, "; its last lines:\n  {}", self.output.join("\n  "))?;
        }
        Ok(())
    }
}

fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;
    let name = match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => "SIGKILL",
        Some(Signal::SEGV) => "SIGSEGV",
        Some(Signal::ABORT) => "SIGABRT",
        Some(Signal::BUS) => "SIGBUS",
        Some(Signal::TERM) => "SIGTERM",
        Some(Signal::INT) => "SIGINT",
        Some(Signal::HUP) => "SIGHUP",
        Some(Signal::ILL) => "SIGILL",
        Some(Signal::FPE) => "SIGFPE",
        Some(Signal::PIPE) => "SIGPIPE",
        Some(Signal::SYS) => "SIGSYS",
        Some(Signal::XCPU) => "SIGXCPU",
        Some(Signal::XFSZ) => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
