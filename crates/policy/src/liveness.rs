//! Whether a worker is busy, waiting, stuck or stopped: by its heartbeat, its CPU time and the state that the kernel reports.
//!
//! | state in /proc | has a call | heartbeat | CPU | result |
//! |---|---|---|---|---|
//! | `Z`, `X`, `x` | | | | dead |
//! | `T`, `t` | | | | stopped: by SIGSTOP or a debugger |
//! | any other | no | | | idle |
//! | any other | yes | answered | moves | busy |
//! | any other | yes | answered | still | waiting: for I/O, a lock, a timer |
//! | any other | yes | silent | moves | busy: C code that holds the GIL |
//! | any other | yes | silent | still | stuck: nothing runs, and nothing else can |
//! | any other | yes | unknown | moves | busy |
//! | any other | yes | unknown | still | waiting: to be still is no fault in itself |
//!
//! "Moves" is more than a trace of it: a thread that waits for the GIL looks for it every 5 ms, and the beat's thread is one.
//! With Python 3.11 that was 0.4 ticks a second while `ctypes.PyDLL(None).sleep(5)` held the GIL, so a worker that hangs
//! does not look quite dead.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// A worker's CPU moves if it used this share of one core's time since the look before.
const MOVES_FROM: f64 = 0.02;

/// It moves by at least so many ticks: one can be left over from before.
const FEWEST_TICKS: u64 = 2;

/// A tick is a hundredth of a second wherever Linux tells of it.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is done about a worker that is stuck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenStuck {
    /// An event reports it, with its stack.
    #[default]
    Report,
    /// It is ended, and another worker is started.
    Replace,
}

settings! {
    /// When a worker counts as stuck for good, and what is done then.
    ///
    /// A stuck worker has a call, does not answer and uses no CPU: it waits for something inside C code that never lets other
    /// threads run. A worker that computes, or waits as Python code does, is never stuck, however long it takes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Stuck {
        /// How long a worker must have shown no sign of life.
        after: Duration as HumanTime = Duration::from_mins(1),
        /// What is done then: `"report"` tells an event, with the worker's stack, and `"replace"` ends the worker.
        then: WhenStuck = WhenStuck::Report,
    }
}

impl Stuck {
    /// What to do about a worker, if it is time to do something.
    pub fn due(&self, liveness: Liveness, now: Instant) -> Option<WhenStuck> {
        match liveness {
            Liveness::Stuck { since } if now.saturating_duration_since(since) >= self.after => {
                Some(self.then)
            }
            // A stopped worker was stopped on purpose, and may be in a debugger.
            Liveness::Stuck { .. }
            | Liveness::Stopped { .. }
            | Liveness::Idle
            | Liveness::Busy
            | Liveness::Waiting
            | Liveness::Dead => None,
        }
    }
}

/// Whether the worker answered a request for a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beat {
    /// It came.
    Answered,
    /// Asked, and not answered by now.
    Silent,
    /// It was not asked, or cannot be.
    Unknown,
}

/// What a worker shows at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeSigns {
    /// How long its oldest call has been running.
    pub has_call_since: Option<Duration>,
    /// What came of the last heartbeat.
    pub beat: Beat,
    /// Clock ticks that it and its descendants used since the look before.
    pub cpu_ticks_moved: u64,
    /// The letter of `/proc/PID/stat`; `?` where there is none.
    pub process_state: char,
}

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// It has no call.
    Idle,
    /// It has a call, and uses the processor.
    Busy,
    /// It has a call, waits for something, and answers.
    Waiting,
    /// It has a call, and shows no sign of life.
    Stuck {
        /// Since when.
        since: Instant,
    },
    /// A signal stopped its process.
    Stopped {
        /// Since when.
        since: Instant,
    },
    /// Its process is gone.
    Dead,
}

/// Follows one worker from look to look.
#[derive(Debug, Default)]
pub struct LivenessJudge {
    looked: Option<Instant>,
    /// When it last was anything but stuck.
    sign_of_life: Option<Instant>,
    stopped: Option<Instant>,
}

impl LivenessJudge {
    /// What the worker does, after one more look at it.
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
                // No longer than it has had this call: before, it was well or unknown.
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
    fn the_table_holds_row_by_row() {
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

    /// Looks once a second; gives back the last judgement.
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
    fn holding_the_gil_asleep_for_half_a_minute_is_not_yet_a_reason() {
        let mut judge = LivenessJudge::default();
        let start = Instant::now();
        // The thread that waits for the GIL costs a tick now and then.
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
    fn one_sign_of_life_begins_the_time_anew() {
        let start = Instant::now();
        let seen = |second: u32| {
            let beat = if second == 40 { Beat::Answered } else { Beat::Silent };
            look('S', Some(second * SECOND), beat, 0)
        };
        let liveness = watch(&mut LivenessJudge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 40 * SECOND });
    }

    #[test]
    fn another_call_begins_the_time_anew() {
        let start = Instant::now();
        let seen = |second: u32| look('S', Some(second.min(5) * SECOND), Beat::Silent, 0);
        let liveness = watch(&mut LivenessJudge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 65 * SECOND });
    }

    #[test]
    fn stopped_time_is_remembered_and_not_held_against_it_afterwards() {
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
