//! Busy, waiting, stuck or stopped: what a worker is doing, judged from inside (does it beat?) and from outside (does its CPU
//! move, what does the kernel say?).
//!
//! | state in /proc | has a call | beat | CPU | judgement |
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

use tokio::time::Instant;

/// A worker's CPU moves if it used this share of one core's time since the look before.
const MOVES_FROM: f64 = 0.02;

/// And no less than so many ticks: one can be left over from before.
const FEWEST_TICKS: u64 = 2;

/// A tick is a hundredth of a second wherever Linux tells of it.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is done about a worker that is stuck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenStuck {
    /// Tell, with its stack, and leave it alone.
    #[default]
    Report,
    /// End it and start another.
    Replace,
}

/// When a worker counts as stuck for good, and what is done then.
///
/// Stuck means that it has a call, does not answer and uses no CPU: it waits for something inside C code that never lets other
/// threads run. A worker that computes, or waits as Python code does, is never stuck, however long it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Stuck {
    pub(crate) after: Duration,
    pub(crate) then: WhenStuck,
}

impl Default for Stuck {
    fn default() -> Self {
        Self { after: Duration::from_mins(1), then: WhenStuck::default() }
    }
}

impl Stuck {
    /// After so long without any sign of life; a minute unless it is set.
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// What is done then; it is reported unless something else is set.
    pub fn then(mut self, then: WhenStuck) -> Self {
        self.then = then;
        self
    }

    /// What to do about a worker, if it is time to do something.
    pub(crate) fn due(&self, liveness: Liveness, now: Instant) -> Option<WhenStuck> {
        match liveness {
            Liveness::Stuck { since } if now.saturating_duration_since(since) >= self.after => {
                Some(self.then)
            }
            // One that is stopped was stopped on purpose, and may be in a debugger.
            Liveness::Stuck { .. }
            | Liveness::Stopped { .. }
            | Liveness::Idle
            | Liveness::Busy
            | Liveness::Waiting
            | Liveness::Dead => None,
        }
    }
}

/// Whether the worker answered when it was asked to beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beat {
    Answered,
    /// Asked, and not answered by now.
    Silent,
    /// It was not asked, or cannot be.
    Unknown,
}

/// What is seen of a worker at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// How long its oldest call has been running.
    pub(crate) has_call_since: Option<Duration>,
    pub(crate) beat: Beat,
    /// Clock ticks that it and its descendants used since the look before.
    pub(crate) cpu_ticks_moved: u64,
    /// The letter of `/proc/PID/stat`; `?` where there is none.
    pub(crate) process_state: char,
}

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Liveness {
    Idle,
    Busy,
    Waiting,
    /// No sign of life since.
    Stuck {
        since: Instant,
    },
    Stopped {
        since: Instant,
    },
    Dead,
}

impl Liveness {
    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Stuck { .. } => "stuck",
            Self::Stopped { .. } => "stopped",
            Self::Dead => "dead",
        }
    }
}

/// Judges one worker, look by look.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    looked: Option<Instant>,
    /// When it last was anything but stuck.
    sign_of_life: Option<Instant>,
    stopped: Option<Instant>,
}

impl Judge {
    pub(crate) fn judge(&mut self, look: &Look, now: Instant) -> Liveness {
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

    fn judgement(&mut self, look: &Look, since_last: Duration, now: Instant) -> Liveness {
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
                // Not longer than it has had this call: before that it was well, or nobody knows.
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

    fn look(process_state: char, has_call: Option<Duration>, beat: Beat, cpu_ticks_moved: u64) -> Look {
        Look { has_call_since: has_call, beat, cpu_ticks_moved, process_state }
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
            let mut judge = Judge::default();
            judge.judge(&look('S', call, Answered, 0), start);
            assert_eq!(judge.judge(&seen, now), expected, "{seen:?}");
        }
    }

    /// Looks once a second; gives back the last judgement.
    fn watch(judge: &mut Judge, from: Instant, seconds: u32, seen: impl Fn(u32) -> Look) -> Liveness {
        (0..=seconds)
            .map(|second| judge.judge(&seen(second), from + second * SECOND))
            .last()
            .expect("one look")
    }

    #[test]
    fn holding_the_gil_asleep_for_half_a_minute_is_not_yet_a_reason() {
        let mut judge = Judge::default();
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
        let liveness = watch(&mut Judge::default(), start, 7200, seen);
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
        let liveness = watch(&mut Judge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 40 * SECOND });
    }

    #[test]
    fn another_call_begins_the_time_anew() {
        let start = Instant::now();
        let seen = |second: u32| look('S', Some(second.min(5) * SECOND), Beat::Silent, 0);
        let liveness = watch(&mut Judge::default(), start, 70, seen);
        assert_eq!(liveness, Liveness::Stuck { since: start + 65 * SECOND });
    }

    #[test]
    fn stopped_time_is_remembered_and_not_held_against_it_afterwards() {
        let mut judge = Judge::default();
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
