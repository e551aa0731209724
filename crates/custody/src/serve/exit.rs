//! The end of a worker.

use std::fmt;
use std::time::Duration;

use crate::link::wire::WorkerEnd;

/// How a worker ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Exit {
    /// The exit status of the main process.
    pub status: ExitStatus,
    /// The largest resident memory, in KiB; 0 if unknown.
    pub max_rss_kib: u64,
    /// Processor time in user mode.
    pub user_time: Duration,
    /// Processor time in the kernel.
    pub system_time: Duration,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// The process exited with this code.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
    /// The keeper was killed, and the worker with it, so its status is unknown.
    Lost,
    /// The shim was killed, and the worker with it, so its status is unknown.
    ShimKilled,
}

impl Exit {
    pub(crate) const LOST: Self = Self::new(ExitStatus::Lost);

    /// Returns an exit whose use of resources is unknown.
    pub const fn new(status: ExitStatus) -> Self {
        Self { status, max_rss_kib: 0, user_time: Duration::ZERO, system_time: Duration::ZERO }
    }
}

impl From<WorkerEnd> for Exit {
    fn from(end: WorkerEnd) -> Self {
        let status = match end.status {
            // A living keeper reported this end, so only the shim can be missing.
            -1 => ExitStatus::ShimKilled,
            status => match status & 0x7F {
                0 => ExitStatus::Code((status >> 8) & 0xFF),
                signal => ExitStatus::Signal(signal),
            },
        };
        Self {
            status,
            max_rss_kib: end.max_rss_kib,
            user_time: Duration::from_micros(end.user_us),
            system_time: Duration::from_micros(end.system_us),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost with its keeper"),
            Self::ShimKilled => f.write_str("lost with its shim"),
        }
    }
}
