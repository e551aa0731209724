//! The watch over one worker: about once a second it checks what the worker is doing, from inside and from outside.
//!
//! A worker is asked for a beat only while one of its calls has run for a while, and not again before it has answered.
//! So a worker with short calls is never asked, and there is never more than one question in the pipe.

use std::time::Duration;

use tokio::time::Instant;

use super::Worker;
use snakepit_policy::liveness::{Beat, LifeSigns, Liveness, LivenessJudge};
use snakepit_process_stats::{ProcessStats, Pss};

/// How long a call must run before the worker is asked for a beat.
const LONG_CALL: Duration = Duration::from_secs(1);

/// How long a worker may take to answer before its silence means anything: a thread of a busy process on a busy machine
/// has to wait for its turn, and for the GIL.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The length of one tick of CPU time, the unit in which [`LivenessJudge`] counts it.
const TICK: Duration = Duration::from_millis(10);

/// What is remembered of a worker between two looks.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    judge: LivenessJudge,
    asked: Option<AskedBeat>,
    /// The CPU time at the last look.
    cpu: Option<Duration>,
}

/// A question that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct AskedBeat {
    at: Instant,
    /// The number of beats before the question.
    beats: u64,
}

impl Watch {
    /// Looks at the worker, and asks for the beat that the next look checks.
    pub(crate) async fn look(&mut self, worker: &Worker) -> (Liveness, Option<ProcessStats>) {
        let stats = worker.process_stats(Pss::Skip).await;
        if let Some(stats) = &stats {
            worker.note_rss(stats.rss_bytes);
        }
        let now = Instant::now();
        let at_work = worker.handle.at_work().iter().map(|it| it.since).min();
        let has_call_since = match at_work {
            Some(since) => Some(now.saturating_duration_since(since)),
            // The handle does not report when calls began.
            None => worker.holds_calls().then_some(Duration::ZERO),
        };
        let look = LifeSigns {
            has_call_since,
            beat: self.beat(worker, now),
            cpu_ticks_moved: self.ticks_moved(stats.as_ref()),
            process_state: stats.as_ref().map_or_else(|| state_unseen(worker), |it| it.state),
        };
        let liveness = self.judge.judge(&look, now);
        if has_call_since.is_some_and(|time| time >= LONG_CALL) {
            self.ask(worker, now);
        }
        (liveness, stats)
    }

    fn beat(&mut self, worker: &Worker, now: Instant) -> Beat {
        let (Some(asked), Some(beats)) = (self.asked, worker.handle.beats()) else { return Beat::Unknown };
        if beats != asked.beats {
            self.asked = None;
            return Beat::Answered;
        }
        let has_had_time = now.saturating_duration_since(asked.at) >= ANSWERS_WITHIN;
        if has_had_time { Beat::Silent } else { Beat::Unknown }
    }

    fn ask(&mut self, worker: &Worker, now: Instant) {
        if self.asked.is_none()
            && let Some(beats) = worker.handle.beats()
        {
            self.asked = Some(AskedBeat { at: now, beats });
            worker.handle.ask_beat();
        }
    }

    fn ticks_moved(&mut self, stats: Option<&ProcessStats>) -> u64 {
        let Some(now) = stats.map(|it| it.cpu) else { return 0 };
        let before = self.cpu.replace(now).unwrap_or(now);
        (now.saturating_sub(before).as_millis() / TICK.as_millis()) as u64
    }
}

/// Returns the state of a process that the kernel does not show: it is gone, or this system shows no processes.
fn state_unseen(worker: &Worker) -> char {
    let is_gone = worker.handle.process().is_some_and(|process| process.try_wait().is_some());
    if is_gone { 'X' } else { '?' }
}

impl Worker {
    /// Returns what the kernel reports about the worker and all processes that it started.
    pub(crate) async fn process_stats(&self, pss: Pss) -> Option<ProcessStats> {
        let process = self.handle.process()?;
        let (worker, shim) = (process.pid(), process.own_shim());
        let oom = self.queue.oom().clone();
        let read = tokio::task::spawn_blocking(move || {
            // The kernel log is a ring buffer that must be read often enough.
            oom.catch_up();
            ProcessStats::read(worker, shim, pss)
        });
        read.await.ok().flatten()
    }
}
