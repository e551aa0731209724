//! How much of the rate limits is used, of the whole mailbox and of each group.

use std::collections::HashMap;

use super::store::after;
use crate::RateLimit;
use crate::backend::RatePeriod;

/// Below this many, periods that are over are not worth a clean-up.
const FEW: usize = 64;

#[derive(Default)]
pub(crate) struct RateUsage {
    whole: Option<RatePeriod>,
    groups: HashMap<String, RatePeriod>,
    /// How many groups there were after the last clean-up.
    kept: usize,
}

impl RateUsage {
    /// The period of the whole mailbox.
    pub(crate) fn period(&self) -> Option<RatePeriod> {
        self.whole
    }

    pub(crate) fn spend(&mut self, rate: &RateLimit, now: u64, messages: u32) {
        self.whole = Some(RatePeriod::spend(self.whole, now, after(0, rate.per), messages));
    }

    /// Counts one message of a group, or returns when the group may have the next one.
    pub(crate) fn spend_of_group(&mut self, group: &str, rate: &RateLimit, now: u64) -> Option<u64> {
        let per = after(0, rate.per);
        let period = self.groups.get(group).copied();
        if let (0, until) = rate.allowance(period, now, per) {
            return Some(until);
        }
        self.groups.insert(group.to_owned(), RatePeriod::spend(period, now, per, 1));
        if self.groups.len() > FEW.max(2 * self.kept) {
            self.groups.retain(|_, period| now < period.began.saturating_add(per));
            self.kept = self.groups.len();
        }
        None
    }
}
