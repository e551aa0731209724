//! Q4, Q6 and Q10: when a lease surely holds, when it is surely over, and what was answered then.

use std::time::Duration;

use snakepit::mailbox::{Extension, MessageId};

use super::lives::{Kind, Lease, Life, Use};
use super::{Case, Report, Rule};
use crate::mailbox::history::{Moment, Time};

/// A lease is compared with so many before it: more than any message has that is given up after a few, and few enough for a backend
/// that never gives one up.
const NEIGHBOURS: usize = 50;

fn after(moment: Moment, lease: Duration) -> Time {
    moment.time.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX))
}

/// When the lease is over by itself at the latest, as far as those could know who were answered before `by`.
pub(super) fn latest_end(lease: &Lease, by: Moment) -> Time {
    let mut end = after(lease.returned, lease.time);
    for it in lease.uses.iter().filter(|it| it.is_accepted != Some(false) && it.invoked <= by) {
        let Kind::Extend(time, extension) = it.kind else { continue };
        let is_set = extension == Extension::Exactly && it.is_accepted == Some(true) && it.returned < by;
        let until = after(it.returned, time);
        end = if is_set { until } else { end.max(until) };
    }
    end
}

/// When the lease is over by itself at the earliest.
fn earliest_end(lease: &Lease) -> Time {
    let mut end = after(lease.invoked, lease.time);
    for it in lease.uses.iter().filter(|it| it.is_accepted != Some(false)) {
        let Kind::Extend(time, extension) = it.kind else { continue };
        let until = after(it.invoked, time);
        match (extension, it.is_accepted) {
            (Extension::AtLeast, Some(true)) => end = end.max(until),
            (Extension::AtLeast, _) => {}
            (Extension::Exactly, _) => end = end.min(until),
        }
    }
    end
}

/// Whether somebody may have ended the lease before this.
fn may_be_ended(lease: &Lease, by: Moment) -> bool {
    lease.uses.iter().any(|it| it.possible_end().is_some() && it.invoked < by)
}

impl Case<'_> {
    /// Whether something may have ended all leases between these.
    fn is_swept(&self, from: Moment, until: Moment) -> bool {
        self.sweeps.iter().any(|(began, ended)| *began <= until && *ended >= from)
    }

    /// Q10 is what Q4 and Q6 say of a lease during which the wall clock jumped.
    fn rule(&self, usual: Rule, lease: &Lease, until: Moment) -> Rule {
        let jumped = self.jumps.iter().any(|at| (lease.invoked..=until).contains(at));
        if jumped { Rule::Q10 } else { usual }
    }

    /// Whether the lease surely holds then, if it holds before.
    fn holds(&self, lease: &Lease, at: Moment) -> bool {
        at.time.saturating_add(self.slack()) < earliest_end(lease)
            && !may_be_ended(lease, at)
            && !self.is_swept(lease.invoked, at)
    }

    pub(super) fn leases(&self, id: MessageId, life: &Life, report: &mut Report) {
        for (place, lease) in life.leases.iter().enumerate() {
            for it in &lease.uses {
                self.answer(id, life, lease, it, report);
            }
            report.fire(Rule::Q6, usize::from(place > 0));
            for other in &life.leases[place.saturating_sub(NEIGHBOURS)..place] {
                self.overlap(id, other, lease, report);
            }
        }
    }

    /// Q4: accepted after the end, or refused before it.
    fn answer(&self, id: MessageId, life: &Life, lease: &Lease, it: &Use, report: &mut Report) {
        let Some(is_accepted) = it.is_accepted else { return };
        let receipt = &lease.receipt;
        let rule = self.rule(Rule::Q4, lease, it.returned);
        report.fire(rule, 1);
        if is_accepted {
            let is_reissued =
                life.leases.iter().any(|newer| newer.invoked > lease.returned && newer.returned < it.invoked);
            report.require(Rule::Q4, !is_reissued, || {
                format!("{id}: {receipt} was accepted after a newer one was given out")
            });
            let is_ended = lease.uses.iter().any(|end| end.end().is_some() && end.returned < it.invoked);
            report.require(Rule::Q4, !is_ended, || {
                format!("{id}: {receipt} was accepted after its lease was ended")
            });
            let end = latest_end(lease, it.invoked).saturating_add(self.slack());
            report.require(rule, it.invoked.time <= end, || {
                format!(
                    "{id}: {receipt} was accepted {:?} too late",
                    Duration::from_nanos(it.invoked.time - end)
                )
            });
        } else {
            let is_wrong = self.holds(lease, it.returned);
            report.require(rule, !is_wrong, || format!("{id}: {receipt} was refused while its lease held"));
        }
    }

    /// Q6: two leases of which, in whatever order they began, the second began while the first surely held.
    fn overlap(&self, id: MessageId, one: &Lease, other: &Lease, report: &mut Report) {
        if one.receipt == other.receipt {
            return;
        }
        let has_numbers = self.redrives == 0 && one.number != other.number;
        let can_follow = |first: &Lease, second: &Lease| {
            first.invoked < second.returned && (!has_numbers || first.number < second.number)
        };
        let is_wrong =
            |first: &Lease, second: &Lease| !can_follow(first, second) || self.holds(first, second.returned);
        if is_wrong(one, other) && is_wrong(other, one) {
            let until = one.returned.max(other.returned);
            let rule = self.rule(Rule::Q6, one, until);
            report.find(rule, format!("{id} was given to two: numbers {} and {}", one.number, other.number));
        }
    }
}
