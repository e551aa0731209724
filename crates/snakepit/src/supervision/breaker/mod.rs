//! Whether a call may come in, judged by how the last ones ended.
//!
//! A circuit counts the calls of a pool or of a command that failed for reasons of the pool's, not of the caller's. When too many
//! did, it *opens*: calls are refused at once instead of waiting for the same end. After a while it lets a few in on trial,
//! *half open*, and what becomes of them decides.
//!
//! | | asked | too many failed | a trial succeeded | a trial failed | a trial was cancelled |
//! |---|---|---|---|---|---|
//! | **closed** | come in | open | – | – | – |
//! | **open** | refused; when its time is over: half open, come in on trial | – | – | – | – |
//! | **half open** | come in on trial while there is a place, else refused | – | the last one: closed | open, twice as long | its place is free |
//!
//! The same table is the `match` in [`Breaker::step`], the only place that changes the state.
//!
//! **Nothing can hold it half open.** Places of trials are taken for as long as the circuit was open; after that they are given
//! again, whether or not somebody forgot to say how a trial ended. A trial that takes longer still counts when it ends.
//!
//! **A closed circuit costs a load to come in and an addition to go out.** The window is two buckets that take turns, each
//! in one word, so what it sees is between a half and the whole of the configured time. The lock is for the other states.

#[cfg(test)]
mod tests;
mod window;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use self::window::{Count, Window};
use crate::call::waiting::after;

/// When calls are refused because the last ones failed.
///
/// ```
/// use std::time::Duration;
/// use snakepit::Breaker;
///
/// let strict = Breaker::default().failures(3).ratio(0.2).open_for(Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[must_use]
pub struct Breaker {
    pub(crate) failures: u32,
    pub(crate) ratio: f64,
    pub(crate) window: Duration,
    pub(crate) open_for: Duration,
    pub(crate) longest: Duration,
    pub(crate) trials: u32,
    pub(crate) errors: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 10,
            ratio: 0.5,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(5),
            longest: Duration::from_mins(1),
            trials: 1,
            errors: false,
        }
    }
}

impl Breaker {
    /// How many calls must have failed at least; 10 unless it is set.
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures.max(1);
        self
    }

    /// Which part of the calls must have failed at least, from 0 to 1; 0.5 unless it is set.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// How long a call counts; 10 s unless it is set.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long calls are refused before the first trial; it doubles with every trial that fails; 5 s unless it is set.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// The longest time for which calls are refused before the next trial; 60 s unless it is set.
    pub fn longest(mut self, time: Duration) -> Self {
        self.longest = time;
        self
    }

    /// How many calls are let in on trial, all of which must succeed; 1 unless it is set.
    pub fn trials(mut self, trials: u32) -> Self {
        self.trials = trials.max(1);
        self
    }

    /// Whether errors that workers answer with, such as exceptions, count as failures, too; they do not unless it is set.
    pub fn errors(mut self, count: bool) -> Self {
        self.errors = count;
        self
    }

    #[expect(clippy::match_same_arms, reason = "a table has its rows apart")]
    fn step(&self, state: State, event: Event, now: Instant) -> (State, Answer) {
        use Answer::{ComeIn, Noted, Refused};
        use Event::{Asked, Cancelled, Failed, Succeeded, Tripped};
        use State::{Closed, HalfOpen, Open};
        match (state, event) {
            (Closed, Asked) => (Closed, ComeIn),
            (Closed, Tripped) => (Open(Span::new(self.open_for.min(self.longest), now)), Noted),
            (Closed, Succeeded | Failed | Cancelled) => (Closed, Noted),

            (Open(span), Asked) if now < span.until => (state, Refused(span.until)),
            (Open(span), Asked) => (HalfOpen(Trials::first(span, now)), ComeIn),
            (Open(_), Tripped | Succeeded | Failed | Cancelled) => (state, Noted),

            (HalfOpen(trials), Asked) => match trials.one_more(self.trials, now) {
                Some(more) => (HalfOpen(more), ComeIn),
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
enum State {
    Closed,
    Open(Span),
    HalfOpen(Trials),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// A call wants to come in.
    Asked,
    /// Too many calls of the window failed.
    Tripped,
    /// The rest is about trials.
    Succeeded,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    ComeIn,
    Refused(Instant),
    Noted,
}

/// A time for which something holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    length: Duration,
    until: Instant,
}

impl Span {
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

/// What is known of the trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trials {
    out: u32,
    passed: u32,
    /// How long places are kept for those that are out.
    span: Span,
}

impl Trials {
    fn first(open: Span, now: Instant) -> Self {
        Self { out: 1, passed: 0, span: Span::new(open.length, now) }
    }

    fn one_more(self, places: u32, now: Instant) -> Option<Self> {
        if now >= self.span.until {
            return Some(Self { out: 1, span: Span::new(self.span.length, now), ..self });
        }
        (self.out + self.passed < places).then_some(Self { out: self.out + 1, ..self })
    }

    fn one_passed(self) -> Self {
        Self { passed: self.passed + 1, ..self.one_back() }
    }

    fn one_back(self) -> Self {
        // A trial that took too long has lost its place already.
        Self { out: self.out.saturating_sub(1), ..self }
    }
}

/// A call may come in. Whoever has this says how it ended: [`Circuit::succeeded`], [`failed`](Circuit::failed) or
/// [`cancelled`](Circuit::cancelled).
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    /// The circuit's gate when it was given: what ended in another time says nothing about this one.
    gate: u64,
    /// It was given when the circuit became half open.
    is_first_trial: bool,
}

/// Calls are refused until then, as far as one can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenUntil(pub(crate) Instant);

/// Whether a circuit lets calls in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CircuitPhase {
    /// All calls come in.
    Closed,
    /// None does.
    Open,
    /// A few do, on trial.
    HalfOpen,
}

/// A circuit, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CircuitState {
    /// Whether it lets calls in.
    pub state: CircuitPhase,
    /// How many calls have ended within its window.
    pub calls: u32,
    /// How many of these failed.
    pub failures: u32,
    /// Since when it has been in this state.
    pub since: Instant,
    /// When the next trial may come in, unless it is closed.
    pub until: Option<Instant>,
    /// How often it has opened so far.
    pub trips: u64,
}

/// The circuit of a pool or of a command.
#[derive(Debug)]
pub(crate) struct Circuit {
    /// Twice the number of changes, and 1 unless it is closed.
    gate: AtomicU64,
    window: Window,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    policy: Breaker,
    state: State,
    since: Instant,
    trips: u64,
}

#[expect(clippy::needless_pass_by_value, reason = "a permit is used up by what is said about it")]
impl Circuit {
    pub(crate) fn new(policy: Breaker, now: Instant) -> Self {
        Self {
            gate: AtomicU64::new(0),
            window: Window::new(policy.window, now),
            held: Mutex::new(Held { policy, state: State::Closed, since: now, trips: 0 }),
        }
    }

    /// Other settings. One that is open stays so, but no longer than the new ones would ever keep it; what its window has counted
    /// stays unless that has another length.
    pub(crate) fn adopt(&self, policy: Breaker, now: Instant) {
        let mut held = self.held();
        if held.policy == policy {
            return;
        }
        held.policy = policy;
        held.state = held.state.at_most(policy.longest, now);
        self.window.set_length(policy.window);
    }

    /// It is as if it had never been asked; calls that are under way say nothing to it any more.
    pub(crate) fn forget(&self, now: Instant) {
        let mut held = self.held();
        *held = Held { policy: held.policy, state: State::Closed, since: now, trips: 0 };
        self.window.clear();
        self.turn_gate(State::Closed);
    }

    /// What was let in before belongs to another time from now on.
    fn turn_gate(&self, state: State) {
        let changes = (self.gate.load(Ordering::Relaxed) >> 1) + 1;
        self.gate.store(changes << 1 | u64::from(state != State::Closed), Ordering::Release);
    }

    /// Whether a call may come in.
    pub(crate) fn admit(&self, now: Instant) -> Result<Permit, OpenUntil> {
        let gate = self.gate.load(Ordering::Acquire);
        if gate & 1 == 0 {
            return Ok(Permit { gate, is_first_trial: false });
        }
        let mut held = self.held();
        let before = self.gate.load(Ordering::Relaxed);
        match self.step(&mut held, Event::Asked, now) {
            // Read while the lock is held: it belongs to the state that let the call in.
            Answer::ComeIn | Answer::Noted => {
                let now_at = self.gate.load(Ordering::Relaxed);
                Ok(Permit { gate: now_at, is_first_trial: now_at != before })
            }
            Answer::Refused(until) => Err(OpenUntil(until)),
        }
    }

    /// The call was answered; an exception of the command's is an answer, too. Says what the circuit became by that.
    pub(crate) fn succeeded(&self, permit: Permit, now: Instant) -> Option<CircuitPhase> {
        if permit.is_trial() {
            return self.trial_ended(&permit, Event::Succeeded, now);
        }
        if self.is_of_now(&permit) {
            self.window.count(Count::Good, now);
        }
        None
    }

    /// The call failed for a reason of the pool's. Says what the circuit became by that.
    pub(crate) fn failed(&self, permit: Permit, now: Instant) -> Option<CircuitPhase> {
        if permit.is_trial() {
            return self.trial_ended(&permit, Event::Failed, now);
        }
        if !self.is_of_now(&permit) {
            return None;
        }
        self.window.count(Count::Bad, now);
        let (calls, failures) = self.window.sum(now);
        let mut held = self.held();
        let many = failures >= held.policy.failures;
        let too_many = many && f64::from(failures) >= held.policy.ratio * f64::from(calls);
        if too_many && self.is_of_now(&permit) {
            self.step(&mut held, Event::Tripped, now);
            return Some(held.state.phase());
        }
        None
    }

    /// The call was given up or refused before anything could be learned from it.
    pub(crate) fn cancelled(&self, permit: Permit, now: Instant) {
        if permit.is_trial() {
            self.trial_ended(&permit, Event::Cancelled, now);
        }
    }

    pub(crate) fn snapshot(&self, now: Instant) -> CircuitState {
        let held = self.held();
        let until = match held.state {
            State::Closed => None,
            State::Open(span) => Some(span.until),
            State::HalfOpen(trials) => Some(trials.span.until),
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

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_now(&self, permit: &Permit) -> bool {
        permit.gate == self.gate.load(Ordering::Acquire)
    }

    fn trial_ended(&self, permit: &Permit, event: Event, now: Instant) -> Option<CircuitPhase> {
        let mut held = self.held();
        if !self.is_of_now(permit) {
            return None;
        }
        self.step(&mut held, event, now);
        (!self.is_of_now(permit)).then(|| held.state.phase())
    }

    fn step(&self, held: &mut Held, event: Event, now: Instant) -> Answer {
        let (next, answer) = held.policy.step(held.state, event, now);
        let moved = std::mem::discriminant(&next) != std::mem::discriminant(&held.state);
        held.state = next;
        if moved {
            held.since = now;
            if next == State::Closed {
                // A new beginning: before the gate opens, so that whoever comes in finds it done.
                self.window.clear();
            }
            held.trips += u64::from(matches!(next, State::Open(_)));
            self.turn_gate(next);
        }
        answer
    }
}

impl State {
    /// The same, with no time in it that is longer than this.
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

impl Permit {
    /// Whether the circuit became half open by it.
    pub(crate) fn is_first_trial(&self) -> bool {
        self.is_first_trial
    }

    fn is_trial(&self) -> bool {
        self.gate & 1 == 1
    }
}
