//! The use of the rate limits, of the whole mailbox and of each key.

use std::collections::HashMap;

use super::store::after;
use crate::RateLimit;
use crate::backend::RatePeriod;

/// The number of keys below which removing ended periods is not worthwhile.
const FEW: usize = 64;

#[derive(Default)]
pub(crate) struct RateUsage {
    whole: Option<RatePeriod>,
    keys: HashMap<String, KeyUsage>,
    /// The number of keys after the last clean-up.
    kept: usize,
}

#[derive(Clone, Copy, Default)]
struct KeyUsage {
    period: Option<RatePeriod>,
    /// The last place that was given out in a later period.
    reserved: Option<RatePeriod>,
}

impl KeyUsage {
    fn matters(&self, now: u64, per: u64) -> bool {
        let ends_later = |period: &RatePeriod| now < period.began.saturating_add(per);
        self.period.as_ref().is_some_and(ends_later) || self.reserved.as_ref().is_some_and(ends_later)
    }
}

/// Whether a message waits for its key the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateWait {
    First,
    /// Its place has come, but the period that it was given a place in has begun late.
    Again,
}

impl RateUsage {
    /// Returns the period of the whole mailbox.
    pub(crate) fn period(&self) -> Option<RatePeriod> {
        self.whole
    }

    pub(crate) fn spend(&mut self, rate: &RateLimit, now: u64, messages: u32) {
        self.whole = Some(RatePeriod::spend(self.whole, now, after(0, rate.per), messages));
    }

    /// Counts one delivery of a key. If the limit is reached, returns when the message may be delivered.
    pub(crate) fn spend_of_key(
        &mut self,
        key: &str,
        rate: &RateLimit,
        now: u64,
        wait: RateWait,
    ) -> Option<u64> {
        let per = after(0, rate.per);
        let usage = self.keys.get(key).copied().unwrap_or_default();
        if let (0, until) = rate.allowance(usage.period, now, per) {
            if wait == RateWait::Again {
                return Some(until);
            }
            let reserved = rate.reserve(usage.reserved, until, per);
            self.keys.insert(key.to_owned(), KeyUsage { reserved: Some(reserved), ..usage });
            return Some(reserved.began);
        }
        let period = Some(RatePeriod::spend(usage.period, now, per, 1));
        self.keys.insert(key.to_owned(), KeyUsage { period, ..usage });
        if self.keys.len() > FEW.max(2 * self.kept) {
            self.keys.retain(|_, usage| usage.matters(now, per));
            self.kept = self.keys.len();
        }
        None
    }

    /// Forgets the places in later periods.
    pub(crate) fn forget_reservations(&mut self) {
        self.keys.values_mut().for_each(|usage| usage.reserved = None);
    }
}
