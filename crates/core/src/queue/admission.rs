//! Admission: which calls are admitted, repeated and counted. This is where a pool asks its policies about calls.
//!
//! A call is admitted with an [`AdmissionPermit`], and the holder of the permit reports how the call ended. That is the
//! caller's side. The worker's side (`worker/suspected_calls.rs`) records the deaths of workers, whether or not a caller is
//! still there.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcomes::Tally;
use super::{CallOutcome, Outcomes, PoolHealth, PoolInner, command_of};
use crate::call::Autopsy;
use crate::call::PoolCommand;
use crate::call::{CallError, Input};
use crate::options::PoolOptions;
use crate::telemetry::Event;
use crate::value::Encoded;
use snakepit_policy::breaker::{Circuit, CircuitPermit, OpenUntil};
use snakepit_policy::jitter::Chance;
use snakepit_policy::quarantine::{Admittance, Charge, QuarantineRefusal, SuspectList};
use snakepit_policy::retry::RetryBudget;
use snakepit_policy::{Breaker, CircuitPhase, CircuitState, Fingerprint, NoRetry, Retry, SuspectCall};

/// A call that workers have died of.
pub type Suspect = SuspectCall<Autopsy>;

/// What a pool knows about the calls it has admitted. Where possible, this knowledge survives a change of the settings.
#[derive(Debug)]
pub(crate) struct Admission {
    retry: Mutex<Retry>,
    budget: RetryBudget,
    book: SuspectList<Autopsy>,
    /// The pool's own circuit; the circuits of the commands are with the commands. They are used only if there is a
    /// breaker.
    circuit: Circuit,
    /// Locked while a command gets its circuit, and while all circuits get new settings.
    breaker: Mutex<Option<Breaker>>,
    has_breaker: AtomicBool,
    /// Whether errors that workers answer with count as failures.
    counts_errors: AtomicBool,
    tally: Tally,
}

/// The permit of an admitted call, until its outcome is reported.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct AdmissionPermit {
    /// The permits of the pool's circuit and of the command's circuit, if there is a breaker.
    permits: Option<(CircuitPermit, CircuitPermit)>,
    is_trial: bool,
}

impl AdmissionPermit {
    /// Reports whether the call must run alone, because workers died that had it.
    pub(crate) fn is_trial(&self) -> bool {
        self.is_trial
    }
}

impl Admission {
    pub(crate) fn new(config: &PoolOptions) -> Self {
        let now = Instant::now();
        Self {
            retry: Mutex::new(config.retry),
            budget: RetryBudget::new(&config.retry, now),
            book: SuspectList::new(config.quarantine.if_enabled()),
            circuit: Circuit::new(config.breaker.unwrap_or_default(), now),
            breaker: Mutex::new(config.breaker),
            has_breaker: AtomicBool::new(config.breaker.is_some()),
            counts_errors: AtomicBool::new(config.breaker.is_some_and(|breaker| breaker.errors)),
            tally: Tally::default(),
        }
    }
}

/// Adopting new settings once a reload has succeeded. A reload that fails must not have discarded anything.
impl PoolInner {
    pub(crate) fn adopt_policies(&self, config: &PoolOptions) {
        let (admission, now) = (&self.admission, Instant::now());
        *locked(&admission.retry) = config.retry;
        admission.budget.adopt(&config.retry);
        for (command, deaths) in admission.book.adopt(config.quarantine.if_enabled(), now) {
            self.announce(|pool| Event::CallQuarantined { pool, command, deaths });
        }
        let mut breaker = locked(&admission.breaker);
        *breaker = config.breaker;
        admission.counts_errors.store(config.breaker.is_some_and(|it| it.errors), Ordering::Relaxed);
        admission.has_breaker.store(config.breaker.is_some(), Ordering::Relaxed);
        let commands = self.known_commands();
        let of_commands = commands.iter().filter_map(|command| command.circuit.get());
        for circuit in of_commands.chain([&admission.circuit]) {
            match *breaker {
                Some(breaker) => circuit.adopt(breaker, now),
                None => circuit.forget(now),
            }
        }
    }

    /// Returns the circuit of a command. A pool without a breaker never uses it.
    fn circuit_of<'a>(&self, command: &'a PoolCommand, now: Instant) -> &'a Circuit {
        if let Some(circuit) = command.circuit.get() {
            return circuit;
        }
        let breaker = locked(&self.admission.breaker);
        command.circuit.get_or_init(|| Circuit::new(breaker.unwrap_or_default(), now))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Admitting calls, and counting how they end.
impl PoolInner {
    /// Admits a call, or returns why it is rejected.
    pub(crate) fn admit(&self, command: &PoolCommand, input: &Encoded) -> Result<AdmissionPermit, CallError> {
        let is_trial = match self.admittance(command, input) {
            Admittance::Free => false,
            Admittance::Trial => true,
            Admittance::Refused((fingerprint, autopsies)) => {
                let command = command.name.to_string();
                return Err(CallError::Quarantined { command, fingerprint, autopsies });
            }
        };
        Ok(AdmissionPermit { is_trial, ..self.admit_by_breaker(command)? })
    }

    /// Reports whether every call is admitted without a look at it, and counted by its outcome alone: there is no
    /// breaker, and no worker has died of a call.
    pub(crate) fn admits_all(&self) -> bool {
        !self.admission.has_breaker.load(Ordering::Relaxed) && self.admission.book.is_empty()
    }

    /// Counts calls that have ended alike, and were admitted because [`PoolInner::admits_all`].
    pub(crate) fn settle_all(&self, calls: usize, outcome: CallOutcome) {
        self.admission.tally.count_all(outcome, calls);
    }

    /// Returns what the quarantine knows about a call.
    pub(crate) fn admittance(&self, command: &PoolCommand, input: &Encoded) -> Admittance<Autopsy> {
        let book = &self.admission.book;
        if book.is_empty() { Admittance::Free } else { book.admittance(&command.name, input, Instant::now()) }
    }

    /// Returns the deaths that a call is quarantined for, or `None` if it is not quarantined.
    pub(crate) fn refuses(
        &self,
        command: &PoolCommand,
        input: &Encoded,
    ) -> Option<QuarantineRefusal<Autopsy>> {
        let book = &self.admission.book;
        if book.is_empty() { None } else { book.refuses(&command.name, input, Instant::now()) }
    }

    fn admit_by_breaker(&self, command: &PoolCommand) -> Result<AdmissionPermit, CallError> {
        if !self.admission.has_breaker.load(Ordering::Relaxed) {
            return Ok(AdmissionPermit::default());
        }
        let (circuit, now) = (&self.admission.circuit, Instant::now());
        let refused = |OpenUntil(until): OpenUntil, command: Option<&PoolCommand>| CallError::CircuitOpen {
            pool: self.name.to_string(),
            command: command.map(|command| command.name.to_string()),
            retry_in: until.saturating_duration_since(now),
        };
        let of_pool = circuit.admit(now).map_err(|until| refused(until, None))?;
        if of_pool.is_first_trial() {
            self.announce(|pool| Event::CircuitHalfOpen { pool, command: None });
        }
        match self.circuit_of(command, now).admit(now) {
            Ok(of_command) => {
                if of_command.is_first_trial() {
                    let command = command_of(&CircuitScope::of(command));
                    self.announce(|pool| Event::CircuitHalfOpen { pool, command });
                }
                Ok(AdmissionPermit { permits: Some((of_pool, of_command)), is_trial: false })
            }
            Err(until) => {
                circuit.cancelled(of_pool, now);
                Err(refused(until, Some(command)))
            }
        }
    }

    /// Counts a call that was not admitted.
    pub(crate) fn count_refused(&self, error: &CallError) {
        self.admission.tally.count(CallOutcome::of(error));
    }

    /// Counts a call that has ended, and reports its outcome to the breaker.
    pub(crate) fn settle(&self, command: &PoolCommand, mut permit: AdmissionPermit, outcome: CallOutcome) {
        self.admission.tally.count(outcome);
        self.tell_breaker(command, &mut permit, outcome);
    }

    /// Reports the outcome of a call, or of one attempt, to the breaker.
    fn tell_breaker(&self, command: &PoolCommand, permit: &mut AdmissionPermit, outcome: CallOutcome) {
        let Some((of_pool, of_command)) = permit.permits.take() else { return };
        let now = Instant::now();
        let tell = |circuit: &Circuit, permit: CircuitPermit| match outcome {
            CallOutcome::Ok => circuit.succeeded(permit, now),
            CallOutcome::Failed if !self.admission.counts_errors.load(Ordering::Relaxed) => {
                circuit.succeeded(permit, now)
            }
            CallOutcome::Failed | CallOutcome::Died | CallOutcome::TimedOut => circuit.failed(permit, now),
            CallOutcome::QueueTimedOut
            | CallOutcome::Saturated
            | CallOutcome::Refused
            | CallOutcome::Cancelled
            | CallOutcome::Stopped => {
                circuit.cancelled(permit, now);
                None
            }
        };
        let became = [
            (tell(&self.admission.circuit, of_pool), CircuitScope::Pool),
            (tell(self.circuit_of(command, now), of_command), CircuitScope::of(command)),
        ];
        for (phase, scope) in became {
            let command = command_of(&scope);
            match phase {
                Some(CircuitPhase::Open) => self.announce(|pool| Event::CircuitOpened { pool, command }),
                Some(CircuitPhase::Closed) => self.announce(|pool| Event::CircuitClosed { pool, command }),
                Some(CircuitPhase::HalfOpen) | None => {}
            }
        }
    }

    /// Returns why the pool is degraded, if it is.
    pub(crate) fn degraded(&self) -> Option<Arc<str>> {
        match &*self.health.borrow() {
            PoolHealth::Degraded { reason, .. } => Some(Arc::clone(reason)),
            PoolHealth::Starting
            | PoolHealth::Ready(_)
            | PoolHealth::Empty
            | PoolHealth::Stopped
            | PoolHealth::Short { .. } => None,
        }
    }

    pub(crate) fn outcomes(&self) -> Outcomes {
        self.admission.tally.read()
    }

    pub(crate) fn circuits(&self) -> CircuitTable {
        let now = Instant::now();
        if !self.admission.has_breaker.load(Ordering::Relaxed) {
            return CircuitTable::default();
        }
        let pool = self.admission.circuit.snapshot(now);
        let mut rows = vec![CircuitRow { scope: CircuitScope::Pool, circuit: pool }];
        let of_commands = self.known_commands().into_iter().filter_map(|command| {
            let circuit = command.circuit.get()?.snapshot(now);
            Some(CircuitRow { scope: CircuitScope::of(&command), circuit })
        });
        rows.extend(of_commands);
        CircuitTable { rows }
    }
}

/// Repeating lost calls.
impl PoolInner {
    /// Adds to the retry budget when a call that may be repeated is made for the first time.
    pub(crate) fn deposit_for_retries(&self) {
        self.admission.budget.deposit();
    }

    /// Decides whether a call may be repeated after the attempt of this number was lost. Returns the pause before the
    /// next attempt, which must fit before `deadline`.
    pub(crate) fn decide_retry(&self, attempt: u32, deadline: Instant) -> Result<Duration, NoRetry> {
        let now = Instant::now();
        let remaining = deadline.saturating_duration_since(now);
        let policy = *locked(&self.admission.retry);
        self.admission.budget.decide(&policy, attempt, remaining, now, Chance::draw())
    }

    /// Reports to the breaker that an attempt was lost, although the call is not over yet.
    pub(crate) fn attempt_lost(&self, command: &PoolCommand, permit: &mut AdmissionPermit) {
        self.tell_breaker(command, permit, CallOutcome::Died);
    }

    /// Admits a lost call again. It is counted as a retry, not as another call.
    pub(crate) fn admit_again(
        &self,
        command: &PoolCommand,
        input: &Encoded,
        attempt: u32,
    ) -> Result<AdmissionPermit, NoRetry> {
        let is_trial = match self.admittance(command, input) {
            Admittance::Free => false,
            Admittance::Trial => true,
            Admittance::Refused(_) => return Err(NoRetry::Quarantined),
        };
        let admitted = self.admit_by_breaker(command).map_err(|_| NoRetry::CircuitOpen)?;
        let permit = AdmissionPermit { is_trial, ..admitted };
        self.admission.tally.count_retry();
        self.announce(|pool| Event::CallRetried { pool, command: Arc::clone(&command.name), attempt });
        Ok(permit)
    }
}

/// Calls that workers die of.
impl PoolInner {
    /// Records that a worker died which had begun this call.
    pub(crate) fn suspect(
        &self,
        command: &PoolCommand,
        input: &Encoded,
        autopsy: &Arc<Autopsy>,
        charge: Charge,
    ) {
        let book = &self.admission.book;
        if let Some(deaths) = book.suspect(&command.name, input, autopsy, charge, Instant::now()) {
            let command = Arc::clone(&command.name);
            self.announce(|pool| Event::CallQuarantined { pool, command, deaths });
        }
    }

    /// Clears the inputs of a call that a worker has answered.
    pub(crate) fn clear(&self, command: &PoolCommand, input: &Input) {
        let inputs = match input {
            Input::One(input) => std::slice::from_ref(input),
            Input::Many(inputs) => inputs,
        };
        self.clear_each(command, inputs);
    }

    pub(crate) fn clear_each(&self, command: &PoolCommand, inputs: &[Encoded]) {
        let book = &self.admission.book;
        if !book.is_empty() {
            let now = Instant::now();
            for input in inputs {
                book.cleared(&command.name, input, now);
            }
        }
    }

    pub(crate) fn suspects(&self) -> Vec<Suspect> {
        self.admission.book.suspects(Instant::now())
    }

    pub(crate) fn release_suspect(&self, fingerprint: Fingerprint) -> bool {
        self.admission.book.release(fingerprint)
    }
}

/// What a circuit covers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CircuitScope {
    /// All calls of the pool.
    Pool,
    /// The calls of one command.
    Command(Arc<str>),
}

impl CircuitScope {
    fn of(command: &PoolCommand) -> Self {
        Self::Command(Arc::clone(&command.name))
    }
}

impl fmt::Display for CircuitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("the pool"),
            Self::Command(name) => f.write_str(name),
        }
    }
}

/// The circuits of a pool at one moment, the pool's own first. `Display` prints them as a table. Empty without a
/// breaker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CircuitTable {
    /// The circuits.
    pub rows: Vec<CircuitRow>,
}

/// A circuit of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CircuitRow {
    /// Whose calls it admits or refuses.
    pub scope: CircuitScope,
    /// What it does at the moment.
    pub circuit: CircuitState,
}

impl CircuitTable {
    /// Returns the circuit of one scope.
    pub fn get(&self, scope: &CircuitScope) -> Option<&CircuitState> {
        self.rows.iter().find(|row| row.scope == *scope).map(|row| &row.circuit)
    }
}

impl fmt::Display for CircuitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Instant::now();
        let name = |scope: &CircuitScope| scope.to_string();
        let width = self.rows.iter().map(|row| name(&row.scope).chars().count()).max().unwrap_or(0).max(7);
        write!(f, "{:width$}  state      calls  failed  opened  next trial", "circuit")?;
        for CircuitRow { scope, circuit: state } in &self.rows {
            let phase = match state.state {
                CircuitPhase::Closed => "closed",
                CircuitPhase::Open => "open",
                CircuitPhase::HalfOpen => "half open",
            };
            let next = match state.until.map(|until| until.saturating_duration_since(now)) {
                None => "–".to_owned(),
                Some(Duration::ZERO) => "now".to_owned(),
                Some(left) => format!("in {:.1} s", left.as_secs_f64()),
            };
            write!(
                f,
                "\n{:width$}  {phase:9}  {:5}  {:6}  {:6}  {next}",
                name(scope),
                state.calls,
                state.failures,
                state.trips,
            )?;
        }
        Ok(())
    }
}
