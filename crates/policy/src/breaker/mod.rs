//! Whether a call is admitted, depending on how the last calls ended.
//!
//! A circuit counts the calls of a pool, or of a command, that failed because of the pool and not because of the
//! caller. When too many fail, the circuit *opens*: calls are refused at once instead of failing late. After a while it
//! is *half open*: it admits a few calls as trials, and their results decide.
//!
//! | | asked | too many failed | a trial succeeded | a trial failed | a trial was cancelled |
//! |---|---|---|---|---|---|
//! | **closed** | admitted | open | – | – | – |
//! | **open** | refused; after the open time: half open, admitted as a trial | – | – | – | – |
//! | **half open** | admitted as a trial while trials are left, else refused | – | if it was the last: closed | open for twice as long | one more trial is left |
//!
//! The `match` in `Breaker::step` is the same table. It is the only place that changes the state.
//!
//! **No call can keep the circuit half open.** The place of a trial is reserved for as long as the circuit was open.
//! Then another call may take the place, even if nothing has reported how the first trial ended. A trial that takes
//! longer still counts when it ends.
//!
//! **A closed circuit costs one load per admission and one addition per result.** The window consists of two buckets,
//! each in one word, that take turns, so it covers between half and all of the configured time. The lock is only for
//! the other states.

#[cfg(test)]
mod tests;
mod window;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use self::window::{CallQuality, FailureWindow};
use super::time::after;
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

settings! {
    /// When calls are refused because earlier ones failed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snakepit::policy::Breaker;
    ///
    /// let strict = Breaker::default().failures(3).ratio(0.2).open_for(Duration::from_secs(1));
    /// ```
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[must_use]
    pub struct Breaker {
        /// How many calls must have failed, at least, to open the circuit. 0 counts as 1.
        failures: u32 = 10,
        /// The share of failed calls that must be reached as well, from 0 to 1.
        ratio: f64 = 0.5,
        /// How long a call counts.
        window: Duration as HumanTime = Duration::from_secs(10),
        /// How long calls are refused before the first trial. The time doubles with each trial that fails.
        open_for: Duration as HumanTime = Duration::from_secs(5),
        /// The longest time that calls are refused before the next trial.
        longest: Duration as HumanTime = Duration::from_mins(1),
        /// How many calls are admitted as trials. All of them must succeed. 0 counts as 1.
        trials: u32 = 1,
        /// Whether error responses of workers, such as exceptions, count as failures, too.
        @manual errors: bool = false,
    }
}

impl Breaker {
    /// Counts error responses of workers, such as exceptions, as failures, too.
    pub fn count_errors(mut self) -> Self {
        self.errors = true;
        self
    }

    #[expect(clippy::match_same_arms, reason = "each row of the table is its own arm")]
    fn step(&self, state: BreakerState, event: BreakerEvent, now: Instant) -> (BreakerState, BreakerAnswer) {
        use BreakerAnswer::{Admitted, Noted, Refused};
        use BreakerEvent::{Asked, Cancelled, Failed, Succeeded, Tripped};
        use BreakerState::{Closed, HalfOpen, Open};
        match (state, event) {
            (Closed, Asked) => (Closed, Admitted),
            (Closed, Tripped) => (Open(OpenPeriod::new(self.open_for.min(self.longest), now)), Noted),
            (Closed, Succeeded | Failed | Cancelled) => (Closed, Noted),

            (Open(span), Asked) if now < span.until => (state, Refused(span.until)),
            (Open(span), Asked) => (HalfOpen(Trials::first(span, now)), Admitted),
            (Open(_), Tripped | Succeeded | Failed | Cancelled) => (state, Noted),

            (HalfOpen(trials), Asked) => match trials.one_more(self.trials, now) {
                Some(more) => (HalfOpen(more), Admitted),
                None => (state, Refused(trials.span.until)),
            },
            (HalfOpen(trials), Succeeded) if trials.passed + 1 >= self.trials => (Closed, Noted),
            (HalfOpen(trials), Succeeded) => (HalfOpen(trials.one_passed()), Noted),
            (HalfOpen(trials), Failed) => (Open(trials.span.twice(self.longest, now)), Noted),
            (HalfOpen(trials), Cancelled) => (HalfOpen(trials.one_back()), Noted),
            (HalfOpen(_), Tripped) => (state, Noted),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BreakerState {
    Closed,
    Open(OpenPeriod),
    HalfOpen(Trials),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BreakerEvent {
    /// A call asks to be admitted.
    Asked,
    /// Too many calls of the window failed.
    Tripped,
    /// A trial succeeded. The events below are about trials, too.
    Succeeded,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BreakerAnswer {
    Admitted,
    Refused(Instant),
    Noted,
}

/// The time that a circuit stays open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenPeriod {
    length: Duration,
    until: Instant,
}

impl OpenPeriod {
    fn new(length: Duration, now: Instant) -> Self {
        Self { length, until: after(now, length) }
    }

    fn at_most(self, longest: Duration, now: Instant) -> Self {
        Self { length: self.length.min(longest), until: self.until.min(after(now, longest)) }
    }

    fn twice(self, longest: Duration, now: Instant) -> Self {
        Self::new(self.length.saturating_mul(2).min(longest), now)
    }
}

/// The calls that run as trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trials {
    out: u32,
    passed: u32,
    /// How long the running trials keep their places.
    span: OpenPeriod,
}

impl Trials {
    fn first(open: OpenPeriod, now: Instant) -> Self {
        Self { out: 1, passed: 0, span: OpenPeriod::new(open.length, now) }
    }

    fn one_more(self, places: u32, now: Instant) -> Option<Self> {
        if now >= self.span.until {
            return Some(Self { out: 1, span: OpenPeriod::new(self.span.length, now), ..self });
        }
        (self.out + self.passed < places).then_some(Self { out: self.out + 1, ..self })
    }

    fn one_passed(self) -> Self {
        Self { passed: self.passed + 1, ..self.one_back() }
    }

    fn one_back(self) -> Self {
        // A trial that took too long has already been replaced.
        Self { out: self.out.saturating_sub(1), ..self }
    }
}

/// The permit of one admitted call. The holder reports how the call ended: [`Circuit::succeeded`],
/// [`failed`](Circuit::failed) or [`cancelled`](Circuit::cancelled).
#[derive(Debug)]
#[must_use]
pub struct CircuitPermit {
    /// The circuit's gate when the call was admitted. A call from before the last state change says nothing about the
    /// present.
    gate: u64,
    /// Whether this call made the circuit half open.
    is_first_trial: bool,
}

/// The time until which calls are refused, at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenUntil(pub Instant);

/// The phase of a circuit, which decides whether it admits calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitPhase {
    /// The circuit admits all calls.
    Closed,
    /// The circuit admits no calls.
    Open,
    /// The circuit admits a few calls as trials.
    HalfOpen,
}

/// A circuit at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CircuitState {
    /// The phase.
    pub state: CircuitPhase,
    /// How many calls ended within the window.
    pub calls: u32,
    /// How many of these failed.
    pub failures: u32,
    /// When the circuit entered this phase.
    pub since: Instant,
    /// When the next trial is admitted, unless the circuit is closed.
    pub until: Option<Instant>,
    /// How often the circuit has opened so far.
    pub trips: u64,
}

/// The circuit of a pool or of a command.
#[derive(Debug)]
pub struct Circuit {
    /// Twice the number of state changes, plus 1 unless the circuit is closed.
    gate: AtomicU64,
    window: FailureWindow,
    held: Mutex<CircuitCore>,
}

#[derive(Debug)]
struct CircuitCore {
    policy: Breaker,
    state: BreakerState,
    since: Instant,
    trips: u64,
}

#[expect(clippy::needless_pass_by_value, reason = "reporting the end of a call consumes its permit")]
impl Circuit {
    /// Returns a closed circuit.
    pub fn new(policy: Breaker, now: Instant) -> Self {
        Self {
            gate: AtomicU64::new(0),
            window: FailureWindow::new(policy.window, now),
            held: Mutex::new(CircuitCore { policy, state: BreakerState::Closed, since: now, trips: 0 }),
        }
    }

    /// Changes the settings. An open circuit stays open, but no longer than the new settings allow. The counts are kept
    /// unless the length of the window changes.
    pub fn adopt(&self, policy: Breaker, now: Instant) {
        let mut held = self.held();
        if held.policy == policy {
            return;
        }
        held.policy = policy;
        held.state = held.state.at_most(policy.longest, now);
        self.window.set_length(policy.window);
    }

    /// Closes the circuit and forgets all counts. Calls that are running no longer count.
    pub fn forget(&self, now: Instant) {
        let mut held = self.held();
        *held = CircuitCore { policy: held.policy, state: BreakerState::Closed, since: now, trips: 0 };
        self.window.clear();
        self.turn_gate(BreakerState::Closed);
    }

    /// Records a state change, after which the calls that were admitted before no longer count.
    fn turn_gate(&self, state: BreakerState) {
        let changes = (self.gate.load(Ordering::Relaxed) >> 1) + 1;
        self.gate.store(changes << 1 | u64::from(state != BreakerState::Closed), Ordering::Release);
    }

    /// Admits a call, or returns the time until which calls are refused.
    pub fn admit(&self, now: Instant) -> Result<CircuitPermit, OpenUntil> {
        let gate = self.gate.load(Ordering::Acquire);
        if gate & 1 == 0 {
            return Ok(CircuitPermit { gate, is_first_trial: false });
        }
        let mut held = self.held();
        let before = self.gate.load(Ordering::Relaxed);
        match self.step(&mut held, BreakerEvent::Asked, now) {
            // Read under the lock, so that the gate belongs to the state that admitted the call.
            BreakerAnswer::Admitted | BreakerAnswer::Noted => {
                let now_at = self.gate.load(Ordering::Relaxed);
                Ok(CircuitPermit { gate: now_at, is_first_trial: now_at != before })
            }
            BreakerAnswer::Refused(until) => Err(OpenUntil(until)),
        }
    }

    /// Records that a call was answered. An exception is an answer, too. Returns the new phase if the answer changed
    /// it.
    pub fn succeeded(&self, permit: CircuitPermit, now: Instant) -> Option<CircuitPhase> {
        if permit.is_trial() {
            return self.trial_ended(&permit, BreakerEvent::Succeeded, now);
        }
        if self.is_of_now(&permit) {
            self.window.count(CallQuality::Good, now);
        }
        None
    }

    /// Records that a call failed because of the pool. Returns the new phase if the failure changed it.
    pub fn failed(&self, permit: CircuitPermit, now: Instant) -> Option<CircuitPhase> {
        if permit.is_trial() {
            return self.trial_ended(&permit, BreakerEvent::Failed, now);
        }
        if !self.is_of_now(&permit) {
            return None;
        }
        self.window.count(CallQuality::Bad, now);
        let (calls, failures) = self.window.sum(now);
        let mut held = self.held();
        let many = failures >= held.policy.failures;
        let too_many = many && f64::from(failures) >= held.policy.ratio * f64::from(calls);
        if too_many && self.is_of_now(&permit) {
            self.step(&mut held, BreakerEvent::Tripped, now);
            return Some(held.state.phase());
        }
        None
    }

    /// Records that a call ended before anything could be learned from it.
    pub fn cancelled(&self, permit: CircuitPermit, now: Instant) {
        if permit.is_trial() {
            self.trial_ended(&permit, BreakerEvent::Cancelled, now);
        }
    }

    /// Returns the state of the circuit, for display.
    pub fn snapshot(&self, now: Instant) -> CircuitState {
        let held = self.held();
        let until = match held.state {
            BreakerState::Closed => None,
            BreakerState::Open(span) => Some(span.until),
            BreakerState::HalfOpen(trials) => Some(trials.span.until),
        };
        let (calls, failures) = self.window.sum(now);
        CircuitState {
            state: held.state.phase(),
            calls,
            failures,
            since: held.since,
            until,
            trips: held.trips,
        }
    }

    fn held(&self) -> MutexGuard<'_, CircuitCore> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_now(&self, permit: &CircuitPermit) -> bool {
        permit.gate == self.gate.load(Ordering::Acquire)
    }

    fn trial_ended(&self, permit: &CircuitPermit, event: BreakerEvent, now: Instant) -> Option<CircuitPhase> {
        let mut held = self.held();
        if !self.is_of_now(permit) {
            return None;
        }
        self.step(&mut held, event, now);
        (!self.is_of_now(permit)).then(|| held.state.phase())
    }

    fn step(&self, held: &mut CircuitCore, event: BreakerEvent, now: Instant) -> BreakerAnswer {
        let (next, answer) = held.policy.step(held.state, event, now);
        let moved = std::mem::discriminant(&next) != std::mem::discriminant(&held.state);
        held.state = next;
        if moved {
            held.since = now;
            if next == BreakerState::Closed {
                // Cleared before the gate changes, so that the next call finds an empty window.
                self.window.clear();
            }
            held.trips += u64::from(matches!(next, BreakerState::Open(_)));
            self.turn_gate(next);
        }
        answer
    }
}

impl BreakerState {
    /// Returns the same state, with no time longer than `longest`.
    fn at_most(self, longest: Duration, now: Instant) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Open(span) => Self::Open(span.at_most(longest, now)),
            Self::HalfOpen(trials) => {
                Self::HalfOpen(Trials { span: trials.span.at_most(longest, now), ..trials })
            }
        }
    }

    fn phase(self) -> CircuitPhase {
        match self {
            Self::Closed => CircuitPhase::Closed,
            Self::Open(_) => CircuitPhase::Open,
            Self::HalfOpen(_) => CircuitPhase::HalfOpen,
        }
    }
}

impl CircuitPermit {
    /// Reports whether this call made the circuit half open.
    pub fn is_first_trial(&self) -> bool {
        self.is_first_trial
    }

    fn is_trial(&self) -> bool {
        self.gate & 1 == 1
    }
}
