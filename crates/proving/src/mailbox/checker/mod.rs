//! Q1 to Q12: what must hold of every history, whatever the backend and whatever went wrong meanwhile.
//!
//! An operation took effect at some moment between its call and its return. A rule is broken only if it is broken wherever in
//! between that was; so what is found is a fault, and a history without findings may still hide one.

mod leases;
mod lives;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use snakepit::mailbox::{AttemptEnd, DeadReason, MessageId};

use super::history::{Dead, Digest, Ending, Event, Moment, Time, Way, What};
use lives::{Lease, Life, Lives};

/// What must hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// After a drain, each id sent is in exactly one of acked, dead-lettered, purged, present.
    Q1,
    /// Nothing is delivered that was not sent, and its body is unchanged.
    Q2,
    /// At most one accepted ack per id, and no delivery after it.
    Q3,
    /// A receipt works while its lease holds, and only then; only the latest does.
    Q4,
    /// Receipts are never reused.
    Q5,
    /// Leases of one id never overlap.
    Q6,
    /// Attempts rise by one, but for those that are released, stop at the limit, and are remembered with their errors.
    Q7,
    /// One dead letter per exhausted id.
    Q8,
    /// What was reported durable survives a cut.
    Q9,
    /// A jump of the wall clock moves no lease.
    Q10,
    /// Everything drains after the fault heals.
    Q11,
    /// Every rule fired at least once.
    Q12,
}

impl Rule {
    /// Those that look at a history; Q12 looks at these.
    pub const ALL: [Self; 11] = [
        Self::Q1,
        Self::Q2,
        Self::Q3,
        Self::Q4,
        Self::Q5,
        Self::Q6,
        Self::Q7,
        Self::Q8,
        Self::Q9,
        Self::Q10,
        Self::Q11,
    ];
}

/// A rule that does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// What is known of the mailbox.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// After how many deliveries a message is given up.
    pub max_deliveries: u32,
    /// By how much the mailbox's clock may differ from that of the history.
    pub slack: Duration,
}

/// What the checker found.
#[derive(Debug, Default)]
pub struct Report {
    /// What does not hold.
    pub violations: Vec<Violation>,
    /// How often each rule had something to look at.
    pub fired: BTreeMap<Rule, u64>,
}

impl Report {
    /// Which rules do not hold.
    pub fn broken(&self) -> BTreeSet<Rule> {
        self.violations.iter().map(|violation| violation.rule).collect()
    }

    /// Q12: the rules that had nothing to look at, but for those that this backend cannot be asked.
    pub fn idle(&self, excused: &[Rule]) -> Vec<Rule> {
        let fired = |rule: &Rule| self.fired.get(rule).is_some_and(|times| *times > 0);
        Rule::ALL.into_iter().filter(|rule| !fired(rule) && !excused.contains(rule)).collect()
    }

    /// Panics with the first findings if there are any, or if a rule had nothing to look at.
    pub fn assert_clean(&self, excused: &[Rule]) {
        let first: Vec<String> = self.violations.iter().take(10).map(ToString::to_string).collect();
        assert!(first.is_empty(), "{} findings:\n{}", self.violations.len(), first.join("\n"));
        assert_eq!(self.idle(excused), [], "Q12: rules that were never asked; {:?}", self.fired);
    }

    fn fire(&mut self, rule: Rule, times: usize) {
        *self.fired.entry(rule).or_default() += times as u64;
    }

    fn find(&mut self, rule: Rule, what: String) {
        self.violations.push(Violation { rule, what });
    }

    fn require(&mut self, rule: Rule, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.find(rule, what());
        }
    }
}

/// Checks all rules.
pub fn check(events: &[Event], ending: &Ending, terms: Terms) -> Report {
    let mut report = Report::default();
    let lives = Lives::new(events);
    let case = Case::new(events, ending, terms, &lives);
    case.places(&mut report);
    for (id, life) in &lives.of {
        case.sends(*id, life, &mut report);
        case.acks(*id, life, &mut report);
        case.attempts(*id, life, &mut report);
        case.dead_letters(*id, life, &mut report);
        case.leases(*id, life, &mut report);
    }
    case.memories(&mut report);
    case.receipts(&mut report);
    case.drained(&mut report);
    report
}

/// A history with all that is asked of it often.
struct Case<'a> {
    ending: &'a Ending,
    terms: Terms,
    lives: &'a Lives,
    cuts: Vec<Moment>,
    jumps: Vec<Moment>,
    /// From when to when something may have ended all leases.
    sweeps: Vec<(Moment, Moment)>,
    /// How many messages purges have removed.
    purged: u64,
    redrives: usize,
    /// The bodies that were found at the end.
    found: HashMap<MessageId, Vec<Digest>>,
    dead: HashMap<MessageId, usize>,
}

impl<'a> Case<'a> {
    fn new(events: &[Event], ending: &'a Ending, terms: Terms, lives: &'a Lives) -> Self {
        let mut case = Self {
            ending,
            terms,
            lives,
            cuts: Vec::new(),
            jumps: Vec::new(),
            sweeps: Vec::new(),
            purged: 0,
            redrives: 0,
            found: HashMap::new(),
            dead: HashMap::new(),
        };
        for event in events {
            let span = (event.invoked, event.returned.unwrap_or(Moment::NEVER));
            match event.what {
                What::Cut => {
                    case.cuts.push(event.invoked);
                    case.sweeps.push(span);
                }
                What::WallJump => case.jumps.push(event.invoked),
                What::Purge { messages } => {
                    case.purged = case.purged.saturating_add(messages.unwrap_or(u64::MAX));
                    case.sweeps.push(span);
                }
                What::Redrive => case.redrives += 1,
                What::Send { .. } | What::Receive { .. } | What::End { .. } | What::Extend { .. } => {}
            }
        }
        for (id, body) in &ending.present {
            case.found.entry(*id).or_default().push(*body);
        }
        for Dead { id, body, .. } in &ending.dead {
            case.found.entry(*id).or_default().push(*body);
            *case.dead.entry(*id).or_default() += 1;
        }
        case
    }

    /// Q1, and Q9 for what a cut may have taken.
    fn places(&self, report: &mut Report) {
        let present: BTreeSet<MessageId> = self.ending.present.iter().map(|(id, _)| *id).collect();
        let last_cut = self.cuts.iter().max();
        let mut missing = Vec::new();
        for (id, life) in &self.lives.of {
            let Some(sent) = &life.sent else { continue };
            report.fire(Rule::Q1, 1);
            let is_durable = last_cut.is_some_and(|cut| sent.returned < *cut);
            report.fire(Rule::Q9, usize::from(is_durable));
            let places = [life.acks().next().is_some(), self.dead.contains_key(id), present.contains(id)];
            match places.iter().filter(|is_there| **is_there).count() {
                // It may have been acked by somebody who never heard of it.
                0 if life.may_be_acked() => {}
                0 => missing.push((*id, is_durable)),
                1 => {}
                _ => report.find(Rule::Q1, format!("{id} is acked, dead, present: {places:?}")),
            }
        }
        if missing.len() as u64 > self.purged {
            for (id, is_durable) in missing {
                let rule = if is_durable { Rule::Q9 } else { Rule::Q1 };
                report.find(rule, format!("{id} was sent and is nowhere; {} were purged", self.purged));
            }
        }
    }

    /// Q2.
    fn sends(&self, id: MessageId, life: &Life, report: &mut Report) {
        let seen = life.leases.iter().map(|lease| (lease.body, lease.returned.time));
        let at_the_end = self.found.get(&id).into_iter().flatten().map(|body| (*body, self.ending.at));
        for (body, at) in seen.chain(at_the_end) {
            report.fire(Rule::Q2, 1);
            match &life.sent {
                Some(sent) => {
                    report.require(Rule::Q2, sent.body == body, || {
                        format!("{id} has another body than was sent")
                    });
                    report.require(Rule::Q2, sent.invoked.time <= at, || {
                        format!("{id} was there before it was sent")
                    });
                }
                // Its sender never heard of it.
                None => report.require(Rule::Q2, self.lives.unanswered.contains(&body), || {
                    format!("{id} was never sent")
                }),
            }
        }
    }

    /// Q3, and Q9 for an ack that a cut has undone.
    fn acks(&self, id: MessageId, life: &Life, report: &mut Report) {
        let mut acks = life.acks();
        let Some(ack) = acks.next() else { return };
        report.fire(Rule::Q3, 1);
        report.require(Rule::Q3, acks.next().is_none(), || format!("{id} was acked twice"));
        for lease in life.leases.iter().filter(|lease| lease.invoked > ack.returned) {
            let is_undone = self.cuts.iter().any(|cut| (ack.returned..=lease.invoked).contains(cut));
            let rule = if is_undone { Rule::Q9 } else { Rule::Q3 };
            report.find(rule, format!("{id} was delivered as number {} after its ack", lease.number));
        }
    }

    /// Q7.
    fn attempts(&self, id: MessageId, life: &Life, report: &mut Report) {
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        for delivery in &life.leases {
            report.fire(Rule::Q7, 1);
            *times.entry(delivery.number).or_default() += 1;
            let limit = self.terms.max_deliveries;
            report.require(Rule::Q7, (1..=limit).contains(&delivery.number), || {
                format!("{id} was delivered as number {} of {limit}", delivery.number)
            });
        }
        for (number, times) in &times {
            let released = |lease: &&Lease| lease.number == *number && lease.may_be_released();
            let allowed = 1 + self.redrives + life.leases.iter().filter(released).count();
            report.require(Rule::Q7, *times <= allowed, || {
                format!("{id} was delivered {times} times as number {number}")
            });
        }
        let highest = times.keys().next_back().copied().unwrap_or(0).min(self.terms.max_deliveries);
        let skipped = (1..highest).filter(|number| !times.contains_key(number)).count();
        // Whoever went away with a delivery has told nobody.
        report.require(Rule::Q7, skipped <= self.lives.lost_receives, || {
            format!("{id} was delivered as number {highest}, and {skipped} before that were given to nobody")
        });
        if self.redrives == 0 {
            for pair in life.leases.windows(2) {
                let least = pair[0].number + u32::from(!pair[0].may_be_released());
                let falls = pair[1].number < least && pair[1].invoked > pair[0].returned;
                report.require(Rule::Q7, !falls, || format!("the attempts of {id} do not rise"));
            }
            for delivery in &life.leases {
                let counts = |other: &&Lease| {
                    other.invoked < delivery.returned && !other.is_released_before(delivery.invoked)
                };
                // This one is among them.
                let most = life.leases.iter().filter(counts).count() + self.lives.lost_receives;
                report.require(Rule::Q7, delivery.number as usize <= most, || {
                    format!("{id} was delivered as number {}, though only {most} count", delivery.number)
                });
            }
        }
    }

    /// Q7 for what dead letters remember: each delivery that counts, and no other; and the error of each that was given back.
    fn memories(&self, report: &mut Report) {
        if self.redrives > 0 {
            return;
        }
        for Dead { id, deliveries, attempts, .. } in &self.ending.dead {
            report.fire(Rule::Q7, 1);
            let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.delivery).collect();
            let expected: Vec<u32> = (1..=*deliveries).collect();
            report.require(Rule::Q7, numbers == expected, || {
                format!("{id} was delivered {deliveries} times, and remembers {numbers:?}")
            });
            for attempt in attempts {
                let error = attempt.error.as_deref();
                let is_right = match attempt.end {
                    AttemptEnd::Nack | AttemptEnd::Bury => error.is_some(),
                    AttemptEnd::Lapse => error.is_none(),
                };
                report.require(Rule::Q7, is_right, || format!("{id} remembers {attempt:?}"));
            }
        }
    }

    /// Q8.
    fn dead_letters(&self, id: MessageId, life: &Life, report: &mut Report) {
        let limit = self.terms.max_deliveries;
        let is_last = |lease: &&Lease| lease.number >= limit && !lease.may_be_released();
        let mut last = life.leases.iter().filter(is_last).peekable();
        if last.peek().is_none() || life.may_be_acked() || self.purged > 0 || self.redrives > 0 {
            return;
        }
        let is_over = last.all(|lease| {
            let is_given_back = lease.uses.iter().any(|it| it.end() == Some(Way::Nack));
            is_given_back
                || leases::latest_end(lease, Moment::NEVER).saturating_add(self.slack()) < self.ending.at
        });
        if is_over {
            report.fire(Rule::Q8, 1);
            let letters = self.dead.get(&id).copied().unwrap_or(0);
            report.require(Rule::Q8, letters == 1, || {
                format!("{id} is exhausted and has {letters} dead letters")
            });
        }
    }

    /// Q5, and what can be said of all dead letters at once.
    fn receipts(&self, report: &mut Report) {
        report.fire(Rule::Q5, self.lives.deliveries);
        for receipt in &self.lives.reused {
            report.find(Rule::Q5, format!("the receipt {receipt} was given out twice"));
        }
        for receipt in &self.lives.unknown {
            report.find(Rule::Q5, format!("the receipt {receipt} was accepted and never given out"));
        }
        let mut seen = BTreeSet::new();
        for Dead { id, reason, deliveries, .. } in &self.ending.dead {
            report.require(Rule::Q8, seen.insert(id), || format!("{id} has two dead letters"));
            let is_right = *reason != DeadReason::Deliveries || *deliveries == self.terms.max_deliveries;
            report.require(Rule::Q8, is_right, || format!("{id} was given up after {deliveries} deliveries"));
        }
    }

    /// Q11.
    fn drained(&self, report: &mut Report) {
        report.fire(Rule::Q11, 1);
        let count = self.ending.count;
        let is_empty = count.visible + count.in_flight + count.delayed == 0 && self.ending.present.is_empty();
        report.require(Rule::Q11, is_empty, || format!("it never drained: {count:?}"));
        let dead = self.ending.dead.len() as u64;
        report.require(Rule::Q8, count.dead == dead, || {
            format!("{} dead letters are counted, {dead} listed", count.dead)
        });
    }

    fn slack(&self) -> Time {
        self.terms.slack.as_nanos() as Time
    }
}
