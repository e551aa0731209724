//! Which calls are refused because workers keep dying of them.
//!
//! A call is known by its fingerprint: a keyed hash of its command and its arguments. Every call that a worker had begun when it
//! died is a suspect; one that is answered later, with the same arguments, is cleared. So only deaths in a row count, and
//! a bystander that happened to run beside a killer is cleared by its next answer.
//!
//! **Who caused a death.** A crash is the call's own doing. A SIGKILL may come from an operator, or from the call itself. Such a death
//! counts half ([`Blame`]), so a call that was hit by chance survives twice as many, and one that does it on purpose is
//! refused in the end.
//!
//! **Several calls at a time.** If a worker dies that does several calls, they share the blame ([`Charge`]). A call with as many deaths
//! as are needed gets a trial: no other call is with its worker. Only a call that killed a worker alone is refused, so
//! a bystander is cleared by its answer, however many workers died beside it.
//!
//! **What it costs.** A pool without suspects pays one relaxed load per call. With suspects, the arguments are hashed only if a
//! suspect has the same command and arguments of the same length: 100 MiB are not read for every innocent upload.
//!
//! **What it keeps.** A bounded number of fingerprints, each with a bounded number of deaths, in a short form
//! ([`DeathRecord::shortened`]).

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
    /// When a call that keeps killing workers is refused.
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
        /// Whether calls are refused at all.
        @manual enabled: bool = true,
        /// How many workers must have died of a call, without an answer in between; 0 is taken for 1. A death that may have come
        /// from outside counts half: by SIGKILL where memory was not short, or ended by the pool because it was stuck. Calls that a
        /// worker did at the same time share its death, and only a call that killed a worker alone is refused.
        deaths: usize = 3,
        /// How long a death counts.
        within: Duration as HumanTime = Duration::from_mins(10),
        /// How long the call is refused after the last death.
        lasts: Duration as HumanTime = Duration::from_mins(10),
        /// How many suspected calls are remembered; the oldest is forgotten first, and one that is refused last.
        remembered: usize = 1000,
    }
}

impl Quarantine {
    /// No call is ever refused.
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// The policy, unless it is off.
    pub fn if_enabled(self) -> Option<Self> {
        self.enabled.then_some(self)
    }
}

/// Whether a worker died of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// It crashed, exited, broke the protocol or took too much memory.
    Own,
    /// Unknown: somebody who knows nothing of its calls may have ended it.
    Perhaps,
}

/// A call's share in a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// How much the death counts.
    pub blame: Blame,
    /// How many calls the worker was doing, this one included.
    pub among: usize,
}

impl Charge {
    /// The weight of a death that one call caused alone.
    const WHOLE: usize = 1000;
    /// How many deaths are remembered for each that is needed: twice as many may be from outside, before and after the trial.
    const REMEMBERED: usize = 4;

    /// The weight as if no other call shared it.
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
    /// It is admitted.
    Free,
    /// It is admitted, and must be alone with its worker.
    Trial,
    /// It is refused.
    Refused(QuarantineRefusal<D>),
}

/// Identifies a call by its command and its arguments, within one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A call of which workers have died.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuspectCall<D> {
    /// Identifies the call.
    pub fingerprint: Fingerprint,
    /// Its command.
    pub command: Arc<str>,
    /// How the workers died, the last one last.
    pub autopsies: Vec<Arc<D>>,
    /// When the last one died.
    pub last: Instant,
    /// Until when it is refused, if it is.
    pub refused_until: Option<Instant>,
    /// Whether its worker does it alone: it was there when too many workers died, but may be a bystander.
    pub on_trial: bool,
}

/// A refused call, and the deaths for which it is refused.
pub type QuarantineRefusal<D> = (Fingerprint, Vec<Arc<D>>);

/// What is kept of a worker's death, to show why a call is refused.
pub trait DeathRecord {
    /// The worker that died.
    fn worker(&self) -> &WorkerId;

    /// The same record with little text: a worker may print 64 KiB, which a thousand suspects would make too much.
    fn shortened(self: &Arc<Self>) -> Arc<Self>;
}

/// A coarse fingerprint, by the command and the length of the arguments: it is made without reading them.
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
    /// The oldest first; never empty.
    deaths: VecDeque<Death<D>>,
    refused_until: Option<Instant>,
    on_trial: bool,
    forget_at: Instant,
}

#[derive(Debug)]
struct SuspectTable<D> {
    /// None: no call is suspected.
    policy: Option<Quarantine>,
    entries: HashMap<Fingerprint, SuspectRecord<D>>,
    /// How many entries have each outline.
    outlines: HashMap<Outline, usize>,
    /// When the first entry can be forgotten.
    sweep_at: Option<Instant>,
}

/// The suspects of one pool.
#[derive(Debug)]
pub struct SuspectList<D> {
    /// The key of all fingerprints, so that nobody can construct two calls with the same one.
    key: RandomState,
    empty: AtomicBool,
    suspects: Mutex<SuspectTable<D>>,
}

impl<D: DeathRecord> SuspectList<D> {
    /// An empty list. Without a policy nothing is refused.
    pub fn new(policy: Option<Quarantine>) -> Self {
        Self {
            key: RandomState::new(),
            empty: AtomicBool::new(true),
            suspects: Mutex::new(SuspectTable::new(policy)),
        }
    }

    /// Changes the settings and decides anew about every suspect, by the deaths that are still known; `None` forgets all. Returns the
    /// commands that are newly refused, with their numbers of deaths.
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
        // Suspects that are too old by the new settings are forgotten next time.
        suspects.sweep_at = suspects.entries.values().map(|entry| entry.forget_at).min();
        self.note(&suspects);
        refused
    }

    /// Whether no call is suspected: one relaxed load.
    pub fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Relaxed)
    }

    /// What tells this call from others.
    pub fn fingerprint(&self, command: &str, args: &Encoded) -> Fingerprint {
        let mut hasher = self.key.build_hasher();
        // The lengths separate the parts.
        hasher.write_usize(command.len());
        hasher.write(command.as_bytes());
        hasher.write_usize(args.head().len());
        hasher.write(args.head());
        // The head says where each body ends.
        args.bodies().for_each(|body| hasher.write(body));
        Fingerprint(hasher.finish())
    }

    fn outline(&self, command: &str, args: &Encoded) -> Outline {
        Outline(self.key.hash_one((command, args.payload_len())))
    }

    /// Whether this call is admitted.
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

    /// Why this call is refused, if it is.
    pub fn refuses(&self, command: &str, args: &Encoded, now: Instant) -> Option<QuarantineRefusal<D>> {
        match self.admittance(command, args, now) {
            Admittance::Refused(refusal) => Some(refusal),
            Admittance::Free | Admittance::Trial => None,
        }
    }

    /// A worker died that had begun this call. Returns the number of deaths if the call is refused from now on.
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

    /// A call was answered, so it is no longer suspected.
    pub fn cleared(&self, command: &str, args: &Encoded, now: Instant) {
        if !self.is_empty() && self.may_know(self.outline(command, args), now) {
            self.release(self.fingerprint(command, args));
        }
    }

    /// Forgets a suspect, and says whether there was one.
    pub fn release(&self, fingerprint: Fingerprint) -> bool {
        let mut suspects = self.locked();
        let known = suspects.remove(fingerprint);
        self.note(&suspects);
        known
    }

    /// All suspects, the latest death first.
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

    /// Called while the lock is held, so that the last store is the true one.
    fn note(&self, suspects: &SuspectTable<D>) {
        self.empty.store(suspects.entries.is_empty(), Ordering::Relaxed);
    }
}

impl<D: DeathRecord> SuspectTable<D> {
    fn new(policy: Option<Quarantine>) -> Self {
        Self { policy, entries: HashMap::new(), outlines: HashMap::new(), sweep_at: None }
    }

    /// Forgets suspects whose time is over, and says whether it looked for any.
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

    /// Makes room for one more. Deaths are rare enough to look at every suspect.
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
        // A worker that had begun the same call twice has died once.
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

    /// Decides whether the call is refused, and until when; keeps no more deaths than that takes.
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

    /// Whether its deaths, without so many of the oldest, are enough, and it caused one of them alone.
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
