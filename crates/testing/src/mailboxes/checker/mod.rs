//! Checks Q1 to Q12: the rules of every history, whatever the backend and whatever went wrong.
//!
//! An operation took effect at some moment between its call and its return. The checker reports a violation only if the
//! rule is broken for every such moment. So each finding is a fault, but a history without findings may still hide one.

mod leases;
mod message_record;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use snakepit_mailbox::{AttemptEnd, DeadReason, MessageId};

use super::history::{
    BodyDigest, ClientOperation, FinalState, FoundDeadLetter, HistoryEvent, HistoryMoment, LeaseEnd,
    Nanoseconds,
};
use message_record::{LeaseRecord, MessageRecord, MessageRecords};

/// A rule that every history must keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// After a drain, each sent id is in exactly one state: acked, dead-lettered, purged or present.
    Q1,
    /// Every delivered message was sent, and its body is unchanged.
    Q2,
    /// An id has at most one accepted ack, and no delivery after it.
    Q3,
    /// A receipt works exactly while its lease holds. Only the latest receipt works.
    Q4,
    /// Receipts are never reused.
    Q5,
    /// Leases of one id never overlap.
    Q6,
    /// Attempts rise by one, except for released ones, stop at the limit, and are remembered with their errors.
    Q7,
    /// An exhausted id has one dead letter.
    Q8,
    /// What was reported durable survives a cut.
    Q9,
    /// A jump of the wall clock does not move a lease.
    Q10,
    /// Everything drains after the fault heals.
    Q11,
    /// Every rule had something to judge.
    Q12,
}

impl Rule {
    /// The rules that judge a history. Q12 judges whether all of them had something to judge.
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

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What broke it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// What the checker must know about the mailbox.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The number of deliveries after which a message is given up.
    pub max_deliveries: u32,
    /// The maximum difference between the mailbox's clock and the history's clock.
    pub slack: Duration,
}

/// What the checker found.
#[derive(Debug, Default)]
pub struct CheckerReport {
    /// The violations.
    pub violations: Vec<Violation>,
    /// How often each rule had something to judge.
    pub fired: BTreeMap<Rule, u64>,
}

impl CheckerReport {
    /// Returns the rules that are broken.
    pub fn broken(&self) -> BTreeSet<Rule> {
        self.violations.iter().map(|violation| violation.rule).collect()
    }

    /// Returns the rules that had nothing to judge (Q12), except those that do not apply to this backend.
    pub fn idle(&self, excused: &[Rule]) -> Vec<Rule> {
        let fired = |rule: &Rule| self.fired.get(rule).is_some_and(|times| *times > 0);
        Rule::ALL.into_iter().filter(|rule| !fired(rule) && !excused.contains(rule)).collect()
    }

    /// Panics with the first violations if there are any, or if a rule had nothing to judge.
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
pub fn check(events: &[HistoryEvent], ending: &FinalState, terms: Terms) -> CheckerReport {
    let mut report = CheckerReport::default();
    let message_record = MessageRecords::new(events);
    let case = HistoryCheck::new(events, ending, terms, &message_record);
    case.places(&mut report);
    for (id, life) in &message_record.of {
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

/// A history, with indexes for frequent queries of the rules.
struct HistoryCheck<'a> {
    ending: &'a FinalState,
    terms: Terms,
    message_record: &'a MessageRecords,
    cuts: Vec<HistoryMoment>,
    jumps: Vec<HistoryMoment>,
    /// The periods in which something may have ended all leases.
    sweeps: Vec<(HistoryMoment, HistoryMoment)>,
    /// The number of messages that purges have removed.
    purged: u64,
    redrives: usize,
    /// The bodies that were found at the end.
    found: HashMap<MessageId, Vec<BodyDigest>>,
    dead: HashMap<MessageId, usize>,
}

impl<'a> HistoryCheck<'a> {
    fn new(
        events: &[HistoryEvent],
        ending: &'a FinalState,
        terms: Terms,
        message_record: &'a MessageRecords,
    ) -> Self {
        let mut case = Self {
            ending,
            terms,
            message_record,
            cuts: Vec::new(),
            jumps: Vec::new(),
            sweeps: Vec::new(),
            purged: 0,
            redrives: 0,
            found: HashMap::new(),
            dead: HashMap::new(),
        };
        for event in events {
            let span = (event.invoked, event.returned.unwrap_or(HistoryMoment::NEVER));
            match event.what {
                ClientOperation::Cut => {
                    case.cuts.push(event.invoked);
                    case.sweeps.push(span);
                }
                ClientOperation::WallJump => case.jumps.push(event.invoked),
                ClientOperation::Purge { messages } => {
                    case.purged = case.purged.saturating_add(messages.unwrap_or(u64::MAX));
                    case.sweeps.push(span);
                }
                ClientOperation::Redrive => case.redrives += 1,
                ClientOperation::Send { .. }
                | ClientOperation::Receive { .. }
                | ClientOperation::End { .. }
                | ClientOperation::Extend { .. } => {}
            }
        }
        for (id, body) in &ending.present {
            case.found.entry(*id).or_default().push(*body);
        }
        for FoundDeadLetter { id, body, .. } in &ending.dead {
            case.found.entry(*id).or_default().push(*body);
            *case.dead.entry(*id).or_default() += 1;
        }
        case
    }

    /// Checks Q1, and Q9 for messages that a cut may have lost.
    fn places(&self, report: &mut CheckerReport) {
        let present: BTreeSet<MessageId> = self.ending.present.iter().map(|(id, _)| *id).collect();
        let last_cut = self.cuts.iter().max();
        let mut missing = Vec::new();
        for (id, life) in &self.message_record.of {
            let Some(sent) = &life.sent else { continue };
            report.fire(Rule::Q1, 1);
            let is_durable = last_cut.is_some_and(|cut| sent.returned < *cut);
            report.fire(Rule::Q9, usize::from(is_durable));
            let places = [life.acks().next().is_some(), self.dead.contains_key(id), present.contains(id)];
            match places.iter().filter(|is_there| **is_there).count() {
                // A client may have acked the message without getting the answer.
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

    /// Checks Q2.
    fn sends(&self, id: MessageId, life: &MessageRecord, report: &mut CheckerReport) {
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
                // The sender may not have got the answer.
                None => report.require(Rule::Q2, self.message_record.unanswered.contains(&body), || {
                    format!("{id} was never sent")
                }),
            }
        }
    }

    /// Checks Q3, and Q9 for an ack that a cut has undone.
    fn acks(&self, id: MessageId, life: &MessageRecord, report: &mut CheckerReport) {
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

    /// Checks Q7.
    fn attempts(&self, id: MessageId, life: &MessageRecord, report: &mut CheckerReport) {
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
            let released = |lease: &&LeaseRecord| lease.number == *number && lease.may_be_released();
            let allowed = 1 + self.redrives + life.leases.iter().filter(released).count();
            report.require(Rule::Q7, *times <= allowed, || {
                format!("{id} was delivered {times} times as number {number}")
            });
        }
        let highest = times.keys().next_back().copied().unwrap_or(0).min(self.terms.max_deliveries);
        let skipped = (1..highest).filter(|number| !times.contains_key(number)).count();
        // A client that ended during a delivery left no trace of the delivery.
        report.require(Rule::Q7, skipped <= self.message_record.lost_receives, || {
            format!("{id} was delivered as number {highest}, and {skipped} earlier ones were never delivered")
        });
        if self.redrives == 0 {
            for pair in life.leases.windows(2) {
                let least = pair[0].number + u32::from(!pair[0].may_be_released());
                let falls = pair[1].number < least && pair[1].invoked > pair[0].returned;
                report.require(Rule::Q7, !falls, || format!("the attempts of {id} do not rise"));
            }
            for delivery in &life.leases {
                let counts = |other: &&LeaseRecord| {
                    other.invoked < delivery.returned && !other.is_released_before(delivery.invoked)
                };
                // The sum includes this delivery.
                let most = life.leases.iter().filter(counts).count() + self.message_record.lost_receives;
                report.require(Rule::Q7, delivery.number as usize <= most, || {
                    format!("{id} was delivered as number {}, though only {most} count", delivery.number)
                });
            }
        }
    }

    /// Checks Q7 for dead letters: they remember exactly the deliveries that count, and the error of each nack.
    fn memories(&self, report: &mut CheckerReport) {
        if self.redrives > 0 {
            return;
        }
        for FoundDeadLetter { id, deliveries, attempts, .. } in &self.ending.dead {
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

    /// Checks Q8.
    fn dead_letters(&self, id: MessageId, life: &MessageRecord, report: &mut CheckerReport) {
        let limit = self.terms.max_deliveries;
        let is_last = |lease: &&LeaseRecord| lease.number >= limit && !lease.may_be_released();
        let mut last = life.leases.iter().filter(is_last).peekable();
        if last.peek().is_none() || life.may_be_acked() || self.purged > 0 || self.redrives > 0 {
            return;
        }
        let is_over = last.all(|lease| {
            let is_given_back = lease.uses.iter().any(|it| it.end() == Some(LeaseEnd::Nack));
            is_given_back
                || leases::latest_end(lease, HistoryMoment::NEVER).saturating_add(self.slack())
                    < self.ending.at
        });
        if is_over {
            report.fire(Rule::Q8, 1);
            let letters = self.dead.get(&id).copied().unwrap_or(0);
            report.require(Rule::Q8, letters == 1, || {
                format!("{id} is exhausted and has {letters} dead letters")
            });
        }
    }

    /// Checks Q5, and the rules about all dead letters together.
    fn receipts(&self, report: &mut CheckerReport) {
        report.fire(Rule::Q5, self.message_record.deliveries);
        for receipt in &self.message_record.reused {
            report.find(Rule::Q5, format!("the receipt {receipt} was given out twice"));
        }
        for receipt in &self.message_record.unknown {
            report.find(Rule::Q5, format!("the receipt {receipt} was accepted and never given out"));
        }
        let mut seen = BTreeSet::new();
        for FoundDeadLetter { id, reason, deliveries, .. } in &self.ending.dead {
            report.require(Rule::Q8, seen.insert(id), || format!("{id} has two dead letters"));
            let is_right = *reason != DeadReason::Deliveries || *deliveries == self.terms.max_deliveries;
            report.require(Rule::Q8, is_right, || format!("{id} was given up after {deliveries} deliveries"));
        }
    }

    /// Checks Q11.
    fn drained(&self, report: &mut CheckerReport) {
        report.fire(Rule::Q11, 1);
        let count = self.ending.count;
        let is_empty = count.visible + count.in_flight + count.delayed == 0 && self.ending.present.is_empty();
        report.require(Rule::Q11, is_empty, || format!("it never drained: {count:?}"));
        let dead = self.ending.dead.len() as u64;
        report.require(Rule::Q8, count.dead == dead, || {
            format!("{} dead letters are counted, {dead} listed", count.dead)
        });
    }

    fn slack(&self) -> Nanoseconds {
        self.terms.slack.as_nanos() as Nanoseconds
    }
}
