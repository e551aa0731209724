//! The use of the rate limits, of the whole mailbox and of each group.

use std::collections::HashMap;

use super::store::after;
use crate::RateLimit;
use crate::backend::RatePeriod;

/// The number of groups below which removing ended periods is not worthwhile.
const FEW: usize = 64;

#[derive(Default)]
pub(crate) struct RateUsage {
    whole: Option<RatePeriod>,
    groups: HashMap<String, RatePeriod>,
    /// The number of groups after the last clean-up.
    kept: usize,
}

impl RateUsage {
    /// Returns the period of the whole mailbox.
    pub(crate) fn period(&self) -> Option<RatePeriod> {
        self.whole
    }

    pub(crate) fn spend(&mut self, rate: &RateLimit, now: u64, messages: u32) {
        self.whole = Some(RatePeriod::spend(self.whole, now, after(0, rate.per), messages));
    }

    /// Counts one delivery of a group. If the limit is reached, returns when the group may have its next delivery.
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
