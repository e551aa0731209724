//! Whether a worker is busy, waiting, stuck or stopped, judged by its heartbeat, its CPU time and its process state.
//!
//! | state in /proc | has a call | heartbeat | CPU | result |
//! |---|---|---|---|---|
//! | `Z`, `X`, `x` | | | | dead |
//! | `T`, `t` | | | | stopped: by SIGSTOP or a debugger |
//! | any other | no | | | idle |
//! | any other | yes | answered | moves | busy |
//! | any other | yes | answered | still | waiting for I/O, a lock or a timer |
//! | any other | yes | silent | moves | busy: C code that holds the GIL |
//! | any other | yes | silent | still | stuck: no thread runs, and no other thread can |
//! | any other | yes | unknown | moves | busy |
//! | any other | yes | unknown | still | waiting: no CPU time alone is not a fault |
//!
//! "Moves" means more than a trace of CPU time. A thread that waits for the GIL wakes up every 5 ms to look for it, and
//! the heartbeat thread is one. With Python 3.11 this took 0.4 ticks a second while `ctypes.PyDLL(None).sleep(5)` held
//! the GIL, so a worker that hangs still uses a little CPU time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The share of one core's time, since the previous look, from which the CPU time of a worker counts as moving.
const MOVES_FROM: f64 = 0.02;

/// The fewest ticks that count as moving: one tick can be left over from before.
const FEWEST_TICKS: u64 = 2;

/// The number of clock ticks per second wherever Linux reports them.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the pool does about a stuck worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenStuck {
    /// The pool emits an event with the worker's stack.
    #[default]
    Report,
    /// The pool ends the worker and starts another one.
    Replace,
}

settings! {
    /// When a worker counts as stuck for good, and what the pool does then.
    ///
    /// A stuck worker has a call, does not answer and uses no CPU time: it waits for something inside C code that never
    /// lets other threads run. A worker that computes, or that waits in Python code, is never stuck, however long it
    /// takes.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::policy::{Stuck, WhenStuck};
    /// use snakepit::python;
    ///
    /// let stuck = Stuck::default().after(Duration::from_mins(5)).then(WhenStuck::Replace);
    /// let pool = python("worker.py").stuck(stuck);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Stuck {
        /// How long a worker must show no sign of life.
        after: Duration as HumanTime = Duration::from_mins(1),
        /// What the pool does then: `"report"` emits an event with the worker's stack, `"replace"` ends the worker.
        then: WhenStuck = WhenStuck::Report,
    }
}

impl Stuck {
    /// Returns what to do about a worker, if it is time to do something.
    pub fn due(&self, liveness: Liveness, now: Instant) -> Option<WhenStuck> {
        match liveness {
            Liveness::Stuck { since } if now.saturating_duration_since(since) >= self.after => {
                Some(self.then)
            }
            // A stopped worker was stopped on purpose, for example by a debugger.
            Liveness::Stuck { .. }
            | Liveness::Stopped { .. }
            | Liveness::Idle
            | Liveness::Busy
            | Liveness::Waiting
            | Liveness::Dead => None,
        }
    }
}

/// How a worker reacted to a request for a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beat {
    /// The worker answered.
    Answered,
    /// The worker was asked, but has not answered yet.
    Silent,
    /// The worker was not asked, or cannot be asked.
    Unknown,
}

/// The signs of life of a worker at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeSigns {
    /// How long the oldest call has been running, if the worker has a call.
    pub has_call_since: Option<Duration>,
    /// The reaction to the last request for a heartbeat.
    pub beat: Beat,
    /// The clock ticks that the worker and its descendants used since the previous look.
    pub cpu_ticks_moved: u64,
    /// The state letter of `/proc/PID/stat`, or `?` if there is none.
    pub process_state: char,
}

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// The worker has no call.
    Idle,
    /// The worker has a call and uses the CPU.
    Busy,
    /// The worker has a call, waits for something, and answers.
    Waiting,
    /// The worker has a call and shows no sign of life.
    Stuck {
        /// The start of this state.
        since: Instant,
    },
    /// A signal stopped the process.
    Stopped {
        /// The start of this state.
        since: Instant,
    },
    /// The process is gone.
    Dead,
}

/// The judge of one worker, from look to look.
#[derive(Debug, Default)]
pub struct LivenessJudge {
    looked: Option<Instant>,
    /// When the worker was last anything but stuck.
    sign_of_life: Option<Instant>,
    stopped: Option<Instant>,
}

impl LivenessJudge {
    /// Returns what the worker is doing, after one more look at it.
    pub fn judge(&mut self, look: &LifeSigns, now: Instant) -> Liveness {
        let since_last = self.looked.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.looked = Some(now);
        let liveness = self.judgement(look, since_last, now);
        if !matches!(liveness, Liveness::Stopped { .. }) {
            self.stopped = None;
        }
        if !matches!(liveness, Liveness::Stuck { .. }) {
            self.sign_of_life = Some(now);
        }
        liveness
    }

    fn judgement(&mut self, look: &LifeSigns, since_last: Duration, now: Instant) -> Liveness {
        match look.process_state {
            'Z' | 'X' | 'x' => return Liveness::Dead,
            'T' | 't' => return Liveness::Stopped { since: *self.stopped.get_or_insert(now) },
            _ => {}
        }
        let Some(running) = look.has_call_since else { return Liveness::Idle };
        match (look.beat, moves(look.cpu_ticks_moved, since_last)) {
            (_, true) => Liveness::Busy,
            (Beat::Answered | Beat::Unknown, false) => Liveness::Waiting,
            (Beat::Silent, false) => {
                // Stuck no longer than it has had this call. Before the call its state was good or unknown.
                let began = now.checked_sub(running).unwrap_or(now);
                Liveness::Stuck { since: (*self.sign_of_life.get_or_insert(now)).max(began) }
            }
        }
    }
}

fn moves(ticks: u64, since_last: Duration) -> bool {
    ticks >= FEWEST_TICKS && ticks as f64 >= since_last.as_secs_f64() * TICKS_PER_SECOND * MOVES_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn look(process_state: char, has_call: Option<Duration>, beat: Beat, cpu_ticks_moved: u64) -> LifeSigns {
        LifeSigns { has_call_since: has_call, beat, cpu_ticks_moved, process_state }
    }

    #[test]
    fn liveness_follows_from_process_state_heartbeat_and_cpu_time() {
        use Beat::{Answered, Silent, Unknown};
        let start = Instant::now();
        let now = start + SECOND;
        let call = Some(10 * SECOND);
        let (stopped, stuck) = (Liveness::Stopped { since: now }, Liveness::Stuck { since: start });
        let rows = [
            (look('Z', call, Answered, 50), Liveness::Dead),
            (look('X', None, Unknown, 0), Liveness::Dead),
            (look('T', call, Silent, 0), stopped),
            (look('t', None, Unknown, 0), stopped),
            (look('S', None, Unknown, 0), Liveness::Idle),
            (look('R', None, Unknown, 90), Liveness::Idle),
            (look('R', call, Answered, 90), Liveness::Busy),
            (look('S', call, Answered, 0), Liveness::Waiting),
            (look('R', call, Silent, 90), Liveness::Busy),
            (look('S', call, Silent, 0), stuck),
            (look('S', call, Silent, 1), stuck),
            (look('D', call, Silent, 0), stuck),
            (look('R', call, Unknown, 90), Liveness::Busy),
            (look('S', call, Unknown, 0), Liveness::Waiting),
            (look('?', call, Unknown, 0), Liveness::Waiting),
        ];
        for (seen, expected) in rows {
            let mut judge = LivenessJudge::default();
            judge.judge(&look('S', call, Answered, 0), start);
            assert_eq!(judge.judge(&seen, now), expected, "{seen:?}");
        }
    }

    /// Looks once a second. Returns the last judgement.
    fn watch(
        judge: &mut LivenessJudge,
        from: Instant,
        seconds: u32,
        seen: impl Fn(u32) -> LifeSigns,
    ) -> Liveness {
        (0..=seconds)
            .map(|second| judge.judge(&seen(second), from + second * SECOND))
            .last()
            .expect("one look")
    }

    #[test]
    fn a_worker_that_sleeps_with_the_gil_held_is_replaced_only_after_the_limit() {
        let mut judge = LivenessJudge::default();
        let start = Instant::now();
        // The thread that waits for the GIL uses a tick now and then.
        let seen =
            |second: u32| look('S', Some(second * SECOND), Beat::Silent, u64::from(second.is_multiple_of(3)));
        let liveness = watch(&mut judge, start, 30, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start });
        let policy = Stuck::default().then(WhenStuck::Replace);
        assert_eq!(policy.due(liveness, start + 30 * SECOND), None);
        let later = watch(&mut judge, start + 31 * SECOND, 29, |second| seen(31 + second));
        assert_eq!(policy.due(later, start + 60 * SECOND), Some(WhenStuck::Replace));
        assert_eq!(Stuck::default().due(later, start + 60 * SECOND), Some(WhenStuck::Report));
    }

    #[test]
    fn computing_in_c_for_hours_is_busy() {
        let start = Instant::now();
        let seen = |second: u32| look('R', Some(second * SECOND), Beat::Silent, 40);
        let liveness = watch(&mut LivenessJudge::default(), start, 7200, seen);
        assert_eq!(liveness, Liveness::Busy);
        assert_eq!(Stuck::default().due(liveness, start + 7200 * SECOND), None);
    }

    #[test]
    fn a_sign_of_life_restarts_the_stuck_time() {
        let start = Instant::now();
        let seen = |second: u32| {
            let beat = if second == 40 { Beat::Answered } else { Beat::Silent };
            look('S', Some(second * SECOND), beat, 0)
        };
        let liveness = watch(&mut LivenessJudge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 40 * SECOND });
    }

    #[test]
    fn another_call_restarts_the_stuck_time() {
        let start = Instant::now();
        let seen = |second: u32| look('S', Some(second.min(5) * SECOND), Beat::Silent, 0);
        let liveness = watch(&mut LivenessJudge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 65 * SECOND });
    }

    #[test]
    fn time_spent_stopped_does_not_count_as_stuck() {
        let mut judge = LivenessJudge::default();
        let start = Instant::now();
        let stopped = |second: u32| look('T', Some(second * SECOND), Beat::Silent, 0);
        let liveness = watch(&mut judge, start, 300, stopped);
        assert_eq!(liveness, Liveness::Stopped { since: start });
        assert_eq!(Stuck::default().then(WhenStuck::Replace).due(liveness, start + 300 * SECOND), None);
        let resumed = look('S', Some(301 * SECOND), Beat::Silent, 0);
        let liveness = judge.judge(&resumed, start + 301 * SECOND);
        assert_eq!(liveness, Liveness::Stuck { since: start + 300 * SECOND });
    }
}
