//! Which calls are refused because workers keep dying of them.
//!
//! A call is identified by its fingerprint: a keyed hash of its command and its arguments. When a worker dies, every
//! call that it had begun becomes a suspect. A later answer to a call with the same arguments clears it. So only deaths
//! in a row count, and a bystander that ran beside a killer is cleared by its next answer.
//!
//! **Who caused a death.** A crash is the fault of the call. A SIGKILL may come from an operator or from the call
//! itself. Such a death counts half ([`Blame`]), so a call that was hit by chance survives twice as many, and a call
//! that kills on purpose is refused in the end.
//!
//! **Several calls at a time.** If a worker dies while it runs several calls, they share the blame ([`Charge`]). After
//! as many deaths as are needed, a call gets a trial: it runs with no other call on its worker. Only a call that killed
//! a worker while running alone is refused, so an answer clears a bystander, however many workers died beside it.
//!
//! **What it costs.** A pool without suspects pays one relaxed load per call. With suspects, arguments are hashed only
//! if a suspect has the same command and arguments of the same length, so unrelated large arguments are never read.
//!
//! **What it keeps.** The list holds a bounded number of fingerprints. Each has a bounded number of deaths, in a short
//! form ([`DeathRecord::shortened`]).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::time::after;
use snakepit_custody::WorkerId;
use snakepit_protocol::value::Encoded;
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

settings! {
    /// When calls are refused because they keep killing workers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snakepit::policy::Quarantine;
    ///
    /// let strict = Quarantine::default().deaths(1).lasts(Duration::from_secs(3600));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Quarantine {
        /// Whether the pool refuses such calls at all.
        @manual enabled: bool = true,
        /// The number of workers that must die of a call, without an answer in between. 0 counts as 1. A death that may
        /// have an outside cause counts half: a SIGKILL while memory was not short, or the pool ended the worker
        /// because it was stuck. Calls that ran at the same time share the death of their worker. Only a call that
        /// killed a worker while running alone is refused.
        deaths: usize = 3,
        /// How long a death counts.
        within: Duration as HumanTime = Duration::from_mins(10),
        /// How long the call is refused after the last death.
        lasts: Duration as HumanTime = Duration::from_mins(10),
        /// The number of suspect calls that the pool remembers. It forgets the oldest first, and refused calls last.
        remembered: usize = 1000,
    }
}

impl Quarantine {
    /// Returns a policy that never refuses a call.
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// Returns the policy, unless it is off.
    pub fn if_enabled(self) -> Option<Self> {
        self.enabled.then_some(self)
    }
}

/// Whether a worker died of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// It did: it crashed, exited, broke the protocol or used too much memory.
    Own,
    /// Unknown. Something else may have ended the worker.
    Perhaps,
}

/// The share of a call in a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// Whether the calls caused the death.
    pub blame: Blame,
    /// How many calls the worker was running, including this one.
    pub among: usize,
}

impl Charge {
    /// The weight of a death that a single call caused.
    const WHOLE: usize = 1000;
    /// The number of remembered deaths for each that is needed. Up to twice as many may have an outside cause, both
    /// before and after the trial.
    const REMEMBERED: usize = 4;

    /// Returns the weight as if no other call shared the death.
    fn unshared(self) -> usize {
        match self.blame {
            Blame::Own => Self::WHOLE,
            Blame::Perhaps => Self::WHOLE / 2,
        }
    }

    fn share(self) -> usize {
        self.unshared().div_ceil(self.among.max(1))
    }

    fn is_alone(self) -> bool {
        self.among <= 1
    }
}

/// Whether a call is admitted.
#[derive(Debug)]
pub enum Admittance<D> {
    /// The call is admitted.
    Free,
    /// The call is admitted, and must run alone on its worker.
    Trial,
    /// The call is refused.
    Refused(QuarantineRefusal<D>),
}

/// The identity of a call within one process: a hash of its command and its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A call that workers have died of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuspectCall<D> {
    /// The fingerprint of the call.
    pub fingerprint: Fingerprint,
    /// The command.
    pub command: Arc<str>,
    /// The deaths of the workers, the latest last.
    pub autopsies: Vec<Arc<D>>,
    /// When the last worker died.
    pub last: Instant,
    /// The time until which the call is refused, if it is.
    pub refused_until: Option<Instant>,
    /// Whether the call must run alone: it was present at too many deaths, but may be a bystander.
    pub on_trial: bool,
}

/// A refused call, and the deaths that it is refused for.
pub type QuarantineRefusal<D> = (Fingerprint, Vec<Arc<D>>);

/// The record of a worker's death, kept to show why a call is refused.
pub trait DeathRecord {
    /// Returns the worker that died.
    fn worker(&self) -> &WorkerId;

    /// Returns the same record with less text. A worker may print 64 KiB, which is too much for a thousand suspects.
    fn shortened(self: &Arc<Self>) -> Arc<Self>;
}

/// A coarse fingerprint: the command and the length of the arguments. Computing it does not read the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Outline(u64);

#[derive(Debug)]
struct Death<D> {
    at: Instant,
    autopsy: Arc<D>,
    charge: Charge,
}

#[derive(Debug)]
struct SuspectRecord<D> {
    command: Arc<str>,
    outline: Outline,
    /// The deaths, the oldest first. Never empty.
    deaths: VecDeque<Death<D>>,
    refused_until: Option<Instant>,
    on_trial: bool,
    forget_at: Instant,
}

#[derive(Debug)]
struct SuspectTable<D> {
    /// `None` if no call is suspected.
    policy: Option<Quarantine>,
    entries: HashMap<Fingerprint, SuspectRecord<D>>,
    /// The number of entries for each outline.
    outlines: HashMap<Outline, usize>,
    /// When the first entry can be forgotten.
    sweep_at: Option<Instant>,
}

/// The suspects of one pool.
#[derive(Debug)]
pub struct SuspectList<D> {
    /// The key of all fingerprints, so that nobody can construct two calls with the same fingerprint.
    key: RandomState,
    empty: AtomicBool,
    suspects: Mutex<SuspectTable<D>>,
}

impl<D: DeathRecord> SuspectList<D> {
    /// Returns an empty list. Without a policy it refuses nothing.
    pub fn new(policy: Option<Quarantine>) -> Self {
        Self {
            key: RandomState::new(),
            empty: AtomicBool::new(true),
            suspects: Mutex::new(SuspectTable::new(policy)),
        }
    }

    /// Changes the settings and judges every suspect again by its remembered deaths. `None` forgets all suspects.
    /// Returns the commands of the calls that are newly refused, with their numbers of deaths.
    pub fn adopt(&self, policy: Option<Quarantine>, now: Instant) -> Vec<(Arc<str>, usize)> {
        let mut suspects = self.locked();
        if suspects.policy == policy {
            return Vec::new();
        }
        let Some(policy) = policy else {
            *suspects = SuspectTable::new(None);
            self.note(&suspects);
            return Vec::new();
        };
        suspects.policy = Some(policy);
        suspects.sweep(now);
        suspects.make_room(policy.remembered.max(1).saturating_add(1));
        let mut refused = Vec::new();
        for entry in suspects.entries.values_mut() {
            let was_refused = entry.refused_until.is_some();
            if !was_refused {
                let last = entry.last();
                let counts = |at: Instant| now.saturating_duration_since(at) < policy.within;
                entry.deaths.retain(|death| Some(death.at) == last || counts(death.at));
            }
            entry.judge(&policy, now);
            if !was_refused && entry.refused_until.is_some() {
                refused.push((Arc::clone(&entry.command), entry.deaths.len()));
            }
        }
        // The next sweep forgets suspects that are too old under the new settings.
        suspects.sweep_at = suspects.entries.values().map(|entry| entry.forget_at).min();
        self.note(&suspects);
        refused
    }

    /// Reports whether no call is suspected. Costs one relaxed load.
    pub fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Relaxed)
    }

    /// Returns the fingerprint of a call.
    pub fn fingerprint(&self, command: &str, args: &Encoded) -> Fingerprint {
        let mut hasher = self.key.build_hasher();
        // The lengths separate the parts.
        hasher.write_usize(command.len());
        hasher.write(command.as_bytes());
        hasher.write_usize(args.head().len());
        hasher.write(args.head());
        // The head contains the length of each body.
        args.bodies().for_each(|body| hasher.write(body));
        Fingerprint(hasher.finish())
    }

    fn outline(&self, command: &str, args: &Encoded) -> Outline {
        Outline(self.key.hash_one((command, args.payload_len())))
    }

    /// Decides whether a call is admitted.
    pub fn admittance(&self, command: &str, args: &Encoded, now: Instant) -> Admittance<D> {
        if self.is_empty() || !self.may_know(self.outline(command, args), now) {
            return Admittance::Free;
        }
        let fingerprint = self.fingerprint(command, args);
        match self.locked().entries.get(&fingerprint) {
            Some(entry) if entry.refused_until.is_some_and(|until| now < until) => {
                Admittance::Refused((fingerprint, entry.autopsies()))
            }
            Some(entry) if entry.on_trial => Admittance::Trial,
            Some(_) | None => Admittance::Free,
        }
    }

    /// Returns why a call is refused, if it is.
    pub fn refuses(&self, command: &str, args: &Encoded, now: Instant) -> Option<QuarantineRefusal<D>> {
        match self.admittance(command, args, now) {
            Admittance::Refused(refusal) => Some(refusal),
            Admittance::Free | Admittance::Trial => None,
        }
    }

    /// Records the death of a worker that had begun this call. Returns the number of deaths if the call is refused from
    /// now on.
    pub fn suspect(
        &self,
        command: &str,
        args: &Encoded,
        autopsy: &Arc<D>,
        charge: Charge,
        now: Instant,
    ) -> Option<usize> {
        let (fingerprint, outline) = (self.fingerprint(command, args), self.outline(command, args));
        let mut suspects = self.locked();
        let policy = suspects.policy?;
        suspects.sweep(now);
        if !suspects.entries.contains_key(&fingerprint) {
            suspects.make_room(policy.remembered.max(1));
            *suspects.outlines.entry(outline).or_default() += 1;
        }
        let SuspectTable { entries, sweep_at, .. } = &mut *suspects;
        let entry = entries.entry(fingerprint).or_insert_with(|| SuspectRecord {
            command: command.into(),
            outline,
            deaths: VecDeque::new(),
            refused_until: None,
            on_trial: false,
            forget_at: now,
        });
        let was_refused = entry.refused_until.is_some();
        entry.add(Death { at: now, autopsy: autopsy.shortened(), charge }, &policy);
        let newly = (!was_refused && entry.refused_until.is_some()).then_some(entry.deaths.len());
        *sweep_at = Some(sweep_at.map_or(entry.forget_at, |at| at.min(entry.forget_at)));
        self.note(&suspects);
        newly
    }

    /// Records that a call was answered, so that it is no longer suspected.
    pub fn cleared(&self, command: &str, args: &Encoded, now: Instant) {
        if !self.is_empty() && self.may_know(self.outline(command, args), now) {
            self.release(self.fingerprint(command, args));
        }
    }

    /// Forgets a suspect. Reports whether there was one.
    pub fn release(&self, fingerprint: Fingerprint) -> bool {
        let mut suspects = self.locked();
        let known = suspects.remove(fingerprint);
        self.note(&suspects);
        known
    }

    /// Returns all suspects, the latest death first.
    pub fn suspects(&self, now: Instant) -> Vec<SuspectCall<D>> {
        let mut suspects = self.locked();
        suspects.sweep(now);
        self.note(&suspects);
        let mut suspects: Vec<_> = suspects.entries.iter().map(|(&id, entry)| entry.listed(id)).collect();
        suspects.sort_by_key(|suspect| std::cmp::Reverse(suspect.last));
        suspects
    }

    fn may_know(&self, outline: Outline, now: Instant) -> bool {
        let mut suspects = self.locked();
        if suspects.sweep(now) {
            self.note(&suspects);
        }
        suspects.outlines.contains_key(&outline)
    }

    fn locked(&self) -> MutexGuard<'_, SuspectTable<D>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates `empty`. The lock must be held, so that the last store is the right one.
    fn note(&self, suspects: &SuspectTable<D>) {
        self.empty.store(suspects.entries.is_empty(), Ordering::Relaxed);
    }
}

impl<D: DeathRecord> SuspectTable<D> {
    fn new(policy: Option<Quarantine>) -> Self {
        Self { policy, entries: HashMap::new(), outlines: HashMap::new(), sweep_at: None }
    }

    /// Forgets suspects whose time is over. Reports whether it was time to look for them.
    fn sweep(&mut self, now: Instant) -> bool {
        if self.sweep_at.is_none_or(|at| now < at) {
            return false;
        }
        let over = self.entries.iter().filter(|(_, entry)| entry.forget_at <= now);
        let over: Vec<_> = over.map(|(&fingerprint, _)| fingerprint).collect();
        for fingerprint in over {
            self.remove(fingerprint);
        }
        self.sweep_at = self.entries.values().map(|entry| entry.forget_at).min();
        true
    }

    /// Makes room for one more suspect. Deaths are rare enough to look at every suspect.
    fn make_room(&mut self, most: usize) {
        while self.entries.len() >= most {
            let oldest = self.entries.iter().min_by_key(|(_, it)| (it.refused_until.is_some(), it.last()));
            let Some((&fingerprint, _)) = oldest else { return };
            self.remove(fingerprint);
        }
    }

    fn remove(&mut self, fingerprint: Fingerprint) -> bool {
        let Some(entry) = self.entries.remove(&fingerprint) else { return false };
        if let Some(count) = self.outlines.get_mut(&entry.outline) {
            *count -= 1;
            if *count == 0 {
                self.outlines.remove(&entry.outline);
            }
        }
        true
    }
}

impl<D: DeathRecord> SuspectRecord<D> {
    fn add(&mut self, death: Death<D>, policy: &Quarantine) {
        // A worker that had begun the same call twice still died only once.
        if self.deaths.iter().any(|known| known.autopsy.worker() == death.autopsy.worker()) {
            return;
        }
        let now = death.at;
        if self.refused_until.is_none() {
            self.deaths.retain(|known| now.saturating_duration_since(known.at) < policy.within);
        }
        self.deaths.push_back(death);
        self.judge(policy, now);
    }

    /// Decides whether the call is refused, and until when. Keeps no more deaths than the decision needs.
    fn judge(&mut self, policy: &Quarantine, now: Instant) {
        let needed = policy.deaths.max(1).saturating_mul(Charge::WHOLE);
        let most = policy.deaths.max(1).saturating_mul(Charge::REMEMBERED);
        while self.is_convicted(1, needed) || self.deaths.len() > most {
            self.deaths.pop_front();
        }
        let last = self.last().unwrap_or(now);
        self.refused_until = self.is_convicted(0, needed).then(|| after(last, policy.lasts));
        self.on_trial = self.deaths.iter().map(|death| death.charge.unshared()).sum::<usize>() >= needed;
        self.forget_at = self.refused_until.unwrap_or_else(|| after(last, policy.within));
    }

    /// Reports whether the deaths, without the oldest `without`, are enough, and whether the call caused one of them
    /// alone.
    fn is_convicted(&self, without: usize, needed: usize) -> bool {
        let charges = || self.deaths.iter().skip(without).map(|death| death.charge);
        charges().any(Charge::is_alone) && charges().map(Charge::share).sum::<usize>() >= needed
    }

    fn last(&self) -> Option<Instant> {
        self.deaths.back().map(|death| death.at)
    }

    fn autopsies(&self) -> Vec<Arc<D>> {
        self.deaths.iter().map(|death| Arc::clone(&death.autopsy)).collect()
    }

    fn listed(&self, fingerprint: Fingerprint) -> SuspectCall<D> {
        SuspectCall {
            fingerprint,
            command: Arc::clone(&self.command),
            autopsies: self.autopsies(),
            last: self.last().unwrap_or(self.forget_at),
            refused_until: self.refused_until,
            on_trial: self.on_trial,
        }
    }
}

#[cfg(test)]
mod tests;
