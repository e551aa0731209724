//! Reports how the command ended: the exit status, the warnings, and the line of JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Serialize;
use snakepit::custody::{Exit, ExitStatus, Run, StopReport, Survivor, WorkerProcess};

use super::job_signals;
use super::terminal::{CommandEnd, ControllingTerminal};
use super::watch::{EndCause, WatchEnd};
use crate::shared::exit_status::{INTERNAL, TIMED_OUT};
use crate::shared::options::shown;
use crate::shared::output::{self, report};

#[derive(Serialize)]
pub(super) struct ExecReport {
    run: String,
    tier: &'static str,
    cgroup: Option<String>,
    status: u8,
    timed_out: bool,
    took_ms: u64,
    copies: Vec<CopyReport>,
    /// The number of copies that needed KILL.
    killed: usize,
    survivors: Vec<SurvivorReport>,
    #[serde(skip)]
    interrupted_as_job: bool,
}

/// The end of one copy.
#[derive(Serialize)]
struct CopyReport {
    worker: String,
    pid: i32,
    /// How the status of the copy was lost, if it was.
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

report! {
    /// A process that could not be killed.
    pub(crate) struct SurvivorReport from survivor: &Survivor {
        pid: i32 = survivor.pid.as_raw(),
        worker: Option<String> = survivor.worker.as_ref().map(ToString::to_string),
        state: char = survivor.state,
        command: String = survivor.command.clone(),
    }
}

impl SurvivorReport {
    /// Describes for people which process it is and why it still exists.
    pub(crate) fn describe(&self) -> String {
        let what = match self.state {
            'D' => "in uninterruptible sleep",
            'T' | 't' => "stopped",
            'Z' => "dead, but not reaped",
            _ => "running",
        };
        format!("pid {} ({}) is {what} (state {})", self.pid, self.command, self.state)
    }
}

impl ExecReport {
    pub(super) fn new(
        run: &Run,
        workers: &[WorkerProcess],
        end: WatchEnd,
        report: &StopReport,
        took: Duration,
        terminal: Option<&ControllingTerminal>,
    ) -> Self {
        let now = Instant::now();
        let (cause, exits, ended_at) = match end {
            WatchEnd::Natural { cause, exits, ended_at } => {
                (cause, exits.into_iter().map(Some).collect(), ended_at)
            }
            WatchEnd::Overdue { cause } => (
                cause,
                workers.iter().map(WorkerProcess::try_wait).collect::<Vec<_>>(),
                std::collections::HashMap::new(),
            ),
        };
        let copies: Vec<CopyReport> = workers
            .iter()
            .zip(exits)
            .map(|(worker, exit)| {
                // All copies began together, but each ended at its own time.
                let ago =
                    ended_at.get(worker.id()).map_or(Duration::ZERO, |ended| now.duration_since(*ended));
                CopyReport::new(worker, exit, took.saturating_sub(ago))
            })
            .collect();
        let status = match cause {
            _ if !report.survivors.is_empty() => INTERNAL,
            EndCause::Timeout => TIMED_OUT,
            EndCause::Command | EndCause::Signal => {
                copies.iter().map(|copy| copy.status).find(|status| *status != 0).unwrap_or(0)
            }
        };
        let interrupted = copies.first().is_some_and(|copy| copy.signal == Some(Signal::SIGINT as i32));
        Self {
            run: run.id().to_string(),
            tier: run.tier().name(),
            cgroup: run.cgroup().map(shown),
            status,
            timed_out: cause == EndCause::Timeout,
            took_ms: millis(took),
            killed: report.killed,
            survivors: report.survivors.iter().map(SurvivorReport::from).collect(),
            interrupted_as_job: interrupted
                && cause == EndCause::Command
                && terminal.is_some_and(|terminal| terminal.is_lent() && terminal.is_job_leader()),
            copies,
        }
    }

    pub(super) fn command_end(&self) -> CommandEnd {
        let was_killed = self.copies.iter().any(|copy| copy.code.is_none());
        if was_killed { CommandEnd::Killed } else { CommandEnd::Exited }
    }

    /// Prints warnings and the line of JSON, and returns the exit status.
    pub(super) fn conclude(self, json: bool) -> u8 {
        let mut text = String::new();
        for copy in self.copies.iter().filter(|copy| copy.is_lost()) {
            let _ = writeln!(
                text,
                "snakepit: {} (pid {}) was {}: its exit status is unknown",
                copy.worker, copy.pid, copy.lost
            );
        }
        for left in &self.survivors {
            let _ = writeln!(text, "snakepit: {} and could not be killed", left.describe());
        }
        if !self.survivors.is_empty() {
            text.push_str("  run `snakepit cleanup` once the kernel has finished what they wait for\n");
        }
        if json {
            text.push_str(&output::json(&self));
        }
        output::err(&text);
        if self.interrupted_as_job {
            job_signals::end_by_interrupt();
        }
        self.status
    }
}

impl CopyReport {
    fn new(worker: &WorkerProcess, exit: Option<Exit>, took: Duration) -> Self {
        let (code, signal) = match exit.map(|exit| exit.status) {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
            Some(ExitStatus::Lost | ExitStatus::ShimKilled) | None => (None, None),
        };
        let status = match (code, signal) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128 + signal as u8,
            (None, None) => INTERNAL,
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
