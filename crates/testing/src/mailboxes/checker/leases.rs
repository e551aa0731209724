//! Q4, Q6 and Q10: when a lease certainly holds, when it is certainly over, and what the mailbox answered at that time.

use std::time::Duration;

use snakepit_mailbox::{LeaseExtension, MessageId};

use super::message_record::{LeaseRecord, LeaseUse, LeaseUseKind, MessageRecord};
use super::{CheckerReport, HistoryCheck, Rule};
use crate::mailboxes::history::{HistoryMoment, Nanoseconds};

/// The number of earlier leases that each lease is compared with. It is larger than any delivery limit, and small
/// enough for a backend that never gives up a message.
const NEIGHBOURS: usize = 50;

fn after(moment: HistoryMoment, lease: Duration) -> Nanoseconds {
    moment.time.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the latest time at which the lease may lapse, considering only the operations before `by`.
pub(super) fn latest_end(lease: &LeaseRecord, by: HistoryMoment) -> Nanoseconds {
    let mut end = after(lease.returned, lease.time);
    for it in lease.uses.iter().filter(|it| it.is_accepted != Some(false) && it.invoked <= by) {
        let LeaseUseKind::Extend(time, extension) = it.kind else { continue };
        let is_set = extension == LeaseExtension::Exactly && it.is_accepted == Some(true) && it.returned < by;
        let until = after(it.returned, time);
        end = if is_set { until } else { end.max(until) };
    }
    end
}

/// Returns the earliest time at which the lease may lapse.
fn earliest_end(lease: &LeaseRecord) -> Nanoseconds {
    let mut end = after(lease.invoked, lease.time);
    for it in lease.uses.iter().filter(|it| it.is_accepted != Some(false)) {
        let LeaseUseKind::Extend(time, extension) = it.kind else { continue };
        let until = after(it.invoked, time);
        match (extension, it.is_accepted) {
            (LeaseExtension::AtLeast, Some(true)) => end = end.max(until),
            (LeaseExtension::AtLeast, _) => {}
            (LeaseExtension::Exactly, _) => end = end.min(until),
        }
    }
    end
}

/// Reports whether a client may have ended the lease before this moment.
fn may_be_ended(lease: &LeaseRecord, by: HistoryMoment) -> bool {
    lease.uses.iter().any(|it| it.possible_end().is_some() && it.invoked < by)
}

impl HistoryCheck<'_> {
    /// Reports whether a purge or a cut between these moments may have ended all leases.
    fn is_swept(&self, from: HistoryMoment, until: HistoryMoment) -> bool {
        self.sweeps.iter().any(|(began, ended)| *began <= until && *ended >= from)
    }

    /// Returns Q10 instead of Q4 or Q6 if the wall clock jumped during the lease.
    fn rule(&self, usual: Rule, lease: &LeaseRecord, until: HistoryMoment) -> Rule {
        let jumped = self.jumps.iter().any(|at| (lease.invoked..=until).contains(at));
        if jumped { Rule::Q10 } else { usual }
    }

    /// Reports whether the lease certainly holds at this moment.
    fn holds(&self, lease: &LeaseRecord, at: HistoryMoment) -> bool {
        at.time.saturating_add(self.slack()) < earliest_end(lease)
            && !may_be_ended(lease, at)
            && !self.is_swept(lease.invoked, at)
    }

    pub(super) fn leases(&self, id: MessageId, life: &MessageRecord, report: &mut CheckerReport) {
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

    /// Checks Q4: no receipt is accepted after the end of its lease or refused before it.
    fn answer(
        &self,
        id: MessageId,
        life: &MessageRecord,
        lease: &LeaseRecord,
        it: &LeaseUse,
        report: &mut CheckerReport,
    ) {
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

    /// Checks Q6: the second of two leases must not begin while the first certainly holds, whichever of them began
    /// first.
    fn overlap(&self, id: MessageId, one: &LeaseRecord, other: &LeaseRecord, report: &mut CheckerReport) {
        if one.receipt == other.receipt {
            return;
        }
        let has_numbers = self.redrives == 0 && one.number != other.number;
        let can_follow = |first: &LeaseRecord, second: &LeaseRecord| {
            first.invoked < second.returned && (!has_numbers || first.number < second.number)
        };
        let is_wrong = |first: &LeaseRecord, second: &LeaseRecord| {
            !can_follow(first, second) || self.holds(first, second.returned)
        };
        if is_wrong(one, other) && is_wrong(other, one) {
            let until = one.returned.max(other.returned);
            let rule = self.rule(Rule::Q6, one, until);
            report.find(rule, format!("{id} was given to two: numbers {} and {}", one.number, other.number));
        }
    }
}
