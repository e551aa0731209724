//! How it ended: the exit status, what a person must hear, and the line of JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Serialize;
use snakepit::custody::{Exit, ExitStatus, Run, StopReport, Survivor, Worker};

use super::signals;
use super::terminal::Terminal;
use super::watch::{Because, End};
use crate::say;

const TIMED_OUT: u8 = 124;

/// Everything there is to say at the end.
#[derive(Serialize)]
pub(super) struct Outcome {
    run: String,
    tier: &'static str,
    cgroup: Option<String>,
    status: u8,
    timed_out: bool,
    took_ms: u64,
    copies: Vec<Copy>,
    /// How many copies needed KILL.
    killed: usize,
    survivors: Vec<Left>,
    #[serde(skip)]
    interrupted_as_a_job: bool,
}

/// How one copy ended.
#[derive(Serialize)]
struct Copy {
    worker: String,
    pid: i32,
    /// How it was lost, if it was.
    #[serde(skip)]
    lost: ExitStatus,
    status: u8,
    code: Option<i32>,
    signal: Option<i32>,
    took_ms: u64,
    max_rss_kib: Option<u64>,
    user_ms: Option<u64>,
    system_ms: Option<u64>,
}

/// A process that the kernel would not let go.
#[derive(Serialize)]
pub(crate) struct Left {
    pid: i32,
    worker: Option<String>,
    state: char,
    command: String,
}

impl From<&Survivor> for Left {
    fn from(survivor: &Survivor) -> Self {
        Self {
            pid: survivor.pid.as_raw(),
            worker: survivor.worker.as_ref().map(ToString::to_string),
            state: survivor.state,
            command: survivor.command.clone(),
        }
    }
}

impl Left {
    /// For a person: who it is and what it waits for.
    pub(crate) fn describe(&self) -> String {
        let what = match self.state {
            'D' => "in uninterruptible sleep",
            'T' | 't' => "stopped",
            'Z' => "dead, but not waited for",
            _ => "running",
        };
        format!("pid {} ({}) is {what} (state {})", self.pid, self.command, self.state)
    }
}

impl Outcome {
    pub(super) fn new(
        run: &Run,
        workers: &[Worker],
        end: End,
        report: &StopReport,
        took: Duration,
        terminal: Option<&Terminal>,
    ) -> Self {
        let now = Instant::now();
        let (because, exits, ended_at) = match end {
            End::Natural { because, exits, ended_at } => {
                (because, exits.into_iter().map(Some).collect(), ended_at)
            }
            End::Overdue { because } => (
                because,
                workers.iter().map(Worker::try_wait).collect::<Vec<_>>(),
                std::collections::HashMap::new(),
            ),
        };
        let copies: Vec<Copy> = workers
            .iter()
            .zip(exits)
            .map(|(worker, exit)| {
                // Counted back from now: all copies began together, and each has its own end.
                let ago =
                    ended_at.get(worker.id()).map_or(Duration::ZERO, |ended| now.duration_since(*ended));
                Copy::new(worker, exit, took.saturating_sub(ago))
            })
            .collect();
        let status = match because {
            _ if !report.survivors.is_empty() => say::OURS,
            Because::TimedOut => TIMED_OUT,
            Because::OfItself | Because::Signalled => {
                copies.iter().map(|copy| copy.status).find(|status| *status != 0).unwrap_or(0)
            }
        };
        let interrupted = copies.first().is_some_and(|copy| copy.signal == Some(Signal::SIGINT as i32));
        Self {
            run: run.id().to_string(),
            tier: run.tier().name(),
            cgroup: run.cgroup().map(|path| path.display().to_string()),
            status,
            timed_out: because == Because::TimedOut,
            took_ms: millis(took),
            killed: report.killed,
            survivors: report.survivors.iter().map(Left::from).collect(),
            interrupted_as_a_job: interrupted
                && because == Because::OfItself
                && terminal.is_some_and(|terminal| terminal.is_lent() && terminal.is_a_jobs_leader()),
            copies,
        }
    }

    /// Whether a signal ended the command.
    pub(super) fn was_signalled(&self) -> bool {
        self.copies.iter().any(|copy| copy.code.is_none())
    }

    /// Says what must be said and gives back the exit status.
    pub(super) fn conclude(self, json: bool) -> u8 {
        let mut text = String::new();
        for copy in self.copies.iter().filter(|copy| copy.is_lost()) {
            let _ = writeln!(
                text,
                "snakepit: {} (pid {}) was {}: how it ended is unknown",
                copy.worker, copy.pid, copy.lost
            );
        }
        for left in &self.survivors {
            let _ = writeln!(text, "snakepit: {} and could not be killed", left.describe());
        }
        if !self.survivors.is_empty() {
            text.push_str("  `snakepit cleanup` tries again; the kernel lets go of them when what they wait for is over\n");
        }
        if json {
            text.push_str(&say::json(&self));
        }
        say::err(&text);
        if self.interrupted_as_a_job {
            signals::end_by_interrupt();
        }
        self.status
    }
}

impl Copy {
    fn new(worker: &Worker, exit: Option<Exit>, took: Duration) -> Self {
        let (code, signal) = match exit.map(|exit| exit.status) {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
            Some(ExitStatus::Lost | ExitStatus::ShimKilled) | None => (None, None),
        };
        let status = match (code, signal) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128 + signal as u8,
            (None, None) => say::OURS,
        };
        Self {
            worker: worker.id().to_string(),
            pid: worker.pid().as_raw(),
            lost: exit.map_or(ExitStatus::Lost, |exit| exit.status),
            status,
            code,
            signal,
            took_ms: millis(took),
            max_rss_kib: exit.map(|exit| exit.max_rss_kib),
            user_ms: exit.map(|exit| millis(exit.user_time)),
            system_ms: exit.map(|exit| millis(exit.system_time)),
        }
    }

    fn is_lost(&self) -> bool {
        self.code.is_none() && self.signal.is_none()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
