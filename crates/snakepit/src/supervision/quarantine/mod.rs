//! Which calls are refused because workers keep dying of them.
//!
//! A call is known by its fingerprint: a keyed hash of its command and its arguments. Every call that a worker had begun when it
//! died is a suspect; one that is answered later, with the same arguments, is cleared. So only deaths in a row count, and
//! a bystander that happened to run beside a killer is cleared by its next answer.
//!
//! **Whose doing it was.** A crash is the call's own. Of a SIGKILL nobody can tell: an operator sends it, and a call can send it to
//! itself. Such a death counts half ([`Blame`]), so a call that was hit by chance has twice as many lives, and one that
//! does it on purpose is refused in the end.
//!
//! **Of several calls.** A worker that does several calls at a time died of one of them, and nobody knows of which: they share the
//! blame ([`Charge`]). A call with as many deaths as are needed gets a trial alone: no other call is with its worker. Only who
//! killed a worker alone is refused, so a bystander is cleared by its answer, however many workers died beside it.
//!
//! **What it costs.** A pool without suspects pays one relaxed load per call. With suspects, the arguments are hashed only if a
//! suspect has the same command and arguments of the same length: 100 MiB are not read for every innocent upload.
//!
//! **What it holds.** So many fingerprints at most, each with as many autopsies as deaths that are needed, and of each autopsy's
//! output some lines: what a worker prints is bounded at 64 KiB, which a thousand suspects would make too much.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::call::waiting::after;
use crate::value::Encoded;
use crate::worker::Autopsy;

/// The most that is kept of one autopsy's texts, in bytes.
const KEPT_TEXT: usize = 4096;
/// The most that is kept of one of its lines, in bytes.
const KEPT_LINE: usize = 1024;

/// When a call that keeps killing workers is refused.
///
/// ```
/// use std::time::Duration;
/// use snakepit::Quarantine;
///
/// let strict = Quarantine::default().deaths(1).lasts(Duration::from_secs(3600));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Quarantine {
    pub(crate) deaths: usize,
    pub(crate) within: Duration,
    pub(crate) lasts: Duration,
    pub(crate) remembered: usize,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { deaths: 3, within: Duration::from_mins(10), lasts: Duration::from_mins(10), remembered: 1000 }
    }
}

impl Quarantine {
    /// How many workers must have died of a call, without an answer in between; 3 unless it is set. A death that may have come from
    /// outside counts half: by SIGKILL where memory was not short, or ended by the pool because it was stuck. Calls that a worker
    /// did at the same time share its death, and whoever is refused had killed a worker alone.
    pub fn deaths(mut self, deaths: usize) -> Self {
        self.deaths = deaths.max(1);
        self
    }

    /// How long a death counts; 10 minutes unless it is set.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// How long the call is refused after the last death; 10 minutes unless it is set.
    pub fn lasts(mut self, time: Duration) -> Self {
        self.lasts = time;
        self
    }

    /// How many calls are remembered at most; 1000 unless it is set. The oldest are forgotten, those that are refused last.
    pub fn remembered(mut self, calls: usize) -> Self {
        self.remembered = calls.max(1);
        self
    }
}

/// Whether a worker died of what it was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blame {
    /// It crashed, exited, broke the protocol or took too much memory.
    Own,
    /// Nobody can tell: it may have been ended by somebody who knows nothing of its calls.
    Perhaps,
}

/// What a call is charged with: a death, of which it is to blame together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    pub(crate) blame: Blame,
    /// How many calls the worker was doing, this one included.
    pub(crate) among: usize,
}

impl Charge {
    /// What a death weighs that is one call's own doing.
    const WHOLE: usize = 1000;
    /// How many deaths are remembered for each that is needed: twice as many may be from outside, before and after the trial.
    const REMEMBERED: usize = 4;

    /// As if nobody shared it.
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

/// What the book says to a call.
#[derive(Debug)]
pub(crate) enum Admittance {
    /// It may come in.
    Free,
    /// It may come in, and must be alone with its worker.
    Trial,
    /// It may not.
    Refused(Refusal),
}

/// By which a call is known: its command and its arguments. It means something only in the process that made it.
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
pub struct Suspect {
    /// By which it is known.
    pub fingerprint: Fingerprint,
    /// Its command.
    pub command: Arc<str>,
    /// How the workers died, the last one last.
    pub autopsies: Vec<Arc<Autopsy>>,
    /// When the last one died.
    pub last: Instant,
    /// Until when it is refused, if it is.
    pub refused_until: Option<Instant>,
    /// Whether it is done alone by its worker: it was there when too many died, and may be a bystander.
    pub on_trial: bool,
}

/// By what a refused call is known, and of which deaths.
pub(crate) type Refusal = (Fingerprint, Vec<Arc<Autopsy>>);

/// What a fingerprint has in common with many others, and what is had without reading the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Outline(u64);

#[derive(Debug)]
struct Death {
    at: Instant,
    autopsy: Arc<Autopsy>,
    charge: Charge,
}

#[derive(Debug)]
struct Entry {
    command: Arc<str>,
    outline: Outline,
    /// The oldest first; never empty.
    deaths: VecDeque<Death>,
    refused_until: Option<Instant>,
    on_trial: bool,
    forget_at: Instant,
}

#[derive(Debug, Default)]
struct Pages {
    /// None: nobody is suspected of anything.
    policy: Option<Quarantine>,
    entries: HashMap<Fingerprint, Entry>,
    /// How many entries have each outline.
    outlines: HashMap<Outline, usize>,
    /// When the first entry can be forgotten.
    sweep_at: Option<Instant>,
}

/// The suspects of one pool.
#[derive(Debug)]
pub(crate) struct QuarantineBook {
    /// The key of all fingerprints: nobody can make two calls that look alike.
    key: RandomState,
    empty: AtomicBool,
    pages: Mutex<Pages>,
}

impl QuarantineBook {
    pub(crate) fn new(policy: Option<Quarantine>) -> Self {
        let pages = Mutex::new(Pages { policy, ..Pages::default() });
        Self { key: RandomState::new(), empty: AtomicBool::new(true), pages }
    }

    /// Other settings: everybody in the book is judged anew, by the deaths that are still known; without any, all is forgotten.
    /// Says who is refused by that who was not before, and of how many deaths.
    pub(crate) fn adopt(&self, policy: Option<Quarantine>, now: Instant) -> Vec<(Arc<str>, usize)> {
        let mut pages = self.pages();
        if pages.policy == policy {
            return Vec::new();
        }
        let Some(policy) = policy else {
            *pages = Pages::default();
            self.note(&pages);
            return Vec::new();
        };
        pages.policy = Some(policy);
        pages.sweep(now);
        pages.make_room(policy.remembered.saturating_add(1));
        let mut refused = Vec::new();
        for entry in pages.entries.values_mut() {
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
        // What has become too old by the new settings goes with the next look.
        pages.sweep_at = pages.entries.values().map(|entry| entry.forget_at).min();
        self.note(&pages);
        refused
    }

    /// Whether nobody is suspected. One relaxed load; whoever gets `true` need not look further.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Relaxed)
    }

    pub(crate) fn fingerprint(&self, command: &str, args: &Encoded) -> Fingerprint {
        let mut hasher = self.key.build_hasher();
        // The lengths keep what stands side by side apart.
        hasher.write_usize(command.len());
        hasher.write(command.as_bytes());
        hasher.write_usize(args.head().len());
        hasher.write(args.head());
        // Where one body ends and the next begins is written in the head.
        args.bodies().for_each(|body| hasher.write(body));
        Fingerprint(hasher.finish())
    }

    fn outline(&self, command: &str, args: &Encoded) -> Outline {
        Outline(self.key.hash_one((command, args.payload_len())))
    }

    /// Whether this call may come in.
    pub(crate) fn admittance(&self, command: &str, args: &Encoded, now: Instant) -> Admittance {
        if self.is_empty() || !self.may_know(self.outline(command, args), now) {
            return Admittance::Free;
        }
        let fingerprint = self.fingerprint(command, args);
        match self.pages().entries.get(&fingerprint) {
            Some(entry) if entry.refused_until.is_some_and(|until| now < until) => {
                Admittance::Refused((fingerprint, entry.autopsies()))
            }
            Some(entry) if entry.on_trial => Admittance::Trial,
            Some(_) | None => Admittance::Free,
        }
    }

    /// If this call is refused: by what it is known, and the autopsies because of which.
    pub(crate) fn refuses(&self, command: &str, args: &Encoded, now: Instant) -> Option<Refusal> {
        match self.admittance(command, args, now) {
            Admittance::Refused(refusal) => Some(refusal),
            Admittance::Free | Admittance::Trial => None,
        }
    }

    /// A worker died that had begun this call. If it is refused from now on: of how many deaths.
    pub(crate) fn suspect(
        &self,
        command: &str,
        args: &Encoded,
        autopsy: &Arc<Autopsy>,
        charge: Charge,
        now: Instant,
    ) -> Option<usize> {
        let (fingerprint, outline) = (self.fingerprint(command, args), self.outline(command, args));
        let mut pages = self.pages();
        let policy = pages.policy?;
        pages.sweep(now);
        if !pages.entries.contains_key(&fingerprint) {
            pages.make_room(policy.remembered);
            *pages.outlines.entry(outline).or_default() += 1;
        }
        let Pages { entries, sweep_at, .. } = &mut *pages;
        let entry = entries.entry(fingerprint).or_insert_with(|| Entry {
            command: command.into(),
            outline,
            deaths: VecDeque::new(),
            refused_until: None,
            on_trial: false,
            forget_at: now,
        });
        let was_refused = entry.refused_until.is_some();
        entry.add(Death { at: now, autopsy: shortened(autopsy), charge }, &policy);
        let newly = (!was_refused && entry.refused_until.is_some()).then_some(entry.deaths.len());
        *sweep_at = Some(sweep_at.map_or(entry.forget_at, |at| at.min(entry.forget_at)));
        self.note(&pages);
        newly
    }

    /// A call was answered: if it was suspected, it no longer is.
    pub(crate) fn cleared(&self, command: &str, args: &Encoded, now: Instant) {
        if !self.is_empty() && self.may_know(self.outline(command, args), now) {
            self.release(self.fingerprint(command, args));
        }
    }

    /// Forgets a suspect; whether there was one.
    pub(crate) fn release(&self, fingerprint: Fingerprint) -> bool {
        let mut pages = self.pages();
        let known = pages.remove(fingerprint);
        self.note(&pages);
        known
    }

    /// Everybody who is suspected, those first who were last seen with a death.
    pub(crate) fn suspects(&self, now: Instant) -> Vec<Suspect> {
        let mut pages = self.pages();
        pages.sweep(now);
        self.note(&pages);
        let mut suspects: Vec<_> = pages.entries.iter().map(|(&id, entry)| entry.listed(id)).collect();
        suspects.sort_by_key(|suspect| std::cmp::Reverse(suspect.last));
        suspects
    }

    fn may_know(&self, outline: Outline, now: Instant) -> bool {
        let mut pages = self.pages();
        if pages.sweep(now) {
            self.note(&pages);
        }
        pages.outlines.contains_key(&outline)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While the lock is held, so that the last word is the true one.
    fn note(&self, pages: &Pages) {
        self.empty.store(pages.entries.is_empty(), Ordering::Relaxed);
    }
}

impl Pages {
    /// Forgets what is over, and whether anything could be.
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

    /// Room for one more. Deaths are rare enough for a look at everybody.
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

impl Entry {
    fn add(&mut self, death: Death, policy: &Quarantine) {
        // A worker that had begun the same call twice has died once.
        if self.deaths.iter().any(|known| known.autopsy.worker == death.autopsy.worker) {
            return;
        }
        let now = death.at;
        if self.refused_until.is_none() {
            self.deaths.retain(|known| now.saturating_duration_since(known.at) < policy.within);
        }
        self.deaths.push_back(death);
        self.judge(policy, now);
    }

    /// Whether it is refused for its deaths, and until when. Of these no more are kept than it takes.
    fn judge(&mut self, policy: &Quarantine, now: Instant) {
        let needed = policy.deaths.saturating_mul(Charge::WHOLE);
        let most = policy.deaths.saturating_mul(Charge::REMEMBERED);
        while self.is_convicted(1, needed) || self.deaths.len() > most {
            self.deaths.pop_front();
        }
        let last = self.last().unwrap_or(now);
        self.refused_until = self.is_convicted(0, needed).then(|| after(last, policy.lasts));
        self.on_trial = self.deaths.iter().map(|death| death.charge.unshared()).sum::<usize>() >= needed;
        self.forget_at = self.refused_until.unwrap_or_else(|| after(last, policy.within));
    }

    /// Whether its deaths but for so many of the oldest are enough, and one of them was no other's doing.
    fn is_convicted(&self, without: usize, needed: usize) -> bool {
        let charges = || self.deaths.iter().skip(without).map(|death| death.charge);
        charges().any(Charge::is_alone) && charges().map(Charge::share).sum::<usize>() >= needed
    }

    fn last(&self) -> Option<Instant> {
        self.deaths.back().map(|death| death.at)
    }

    fn autopsies(&self) -> Vec<Arc<Autopsy>> {
        self.deaths.iter().map(|death| Arc::clone(&death.autopsy)).collect()
    }

    fn listed(&self, fingerprint: Fingerprint) -> Suspect {
        Suspect {
            fingerprint,
            command: Arc::clone(&self.command),
            autopsies: self.autopsies(),
            last: self.last().unwrap_or(self.forget_at),
            refused_until: self.refused_until,
            on_trial: self.on_trial,
        }
    }
}

/// The same autopsy if it is short, else one with the last lines only.
fn shortened(autopsy: &Arc<Autopsy>) -> Arc<Autopsy> {
    let fault = autopsy.fault.as_ref();
    let stack = autopsy.stack.as_ref();
    let text: usize = autopsy.output.iter().chain(fault).chain(stack).map(String::len).sum();
    if text <= KEPT_TEXT {
        return Arc::clone(autopsy);
    }
    // The fault has a line's room, and so has a stack.
    let mut room = KEPT_TEXT - KEPT_LINE * (1 + stack.iter().count());
    let mut output = Vec::new();
    for line in autopsy.output.iter().rev() {
        let line = cut(line);
        let Some(left) = room.checked_sub(line.len()) else { break };
        room = left;
        output.push(line);
    }
    output.reverse();
    let stack = stack.map(|it| cut(it));
    Arc::new(Autopsy { fault: fault.map(|it| cut(it)), output, stack, ..(**autopsy).clone() })
}

fn cut(line: &str) -> String {
    const MARK: &str = "…";
    if line.len() <= KEPT_LINE {
        return line.to_owned();
    }
    let end = line.floor_char_boundary(KEPT_LINE - MARK.len());
    format!("{}{MARK}", &line[..end])
}

#[cfg(test)]
mod tests;
