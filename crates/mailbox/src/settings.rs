//! The settings of a mailbox, which are the same for all of its users in all processes.

use std::time::Duration;

use super::MailboxError;
use super::options::{MAX_DELAY, positive};

/// The settings of a mailbox. They are stored with the mailbox, so that all of its users follow the same settings.
///
/// ```
/// use snakepit::mailbox::{Mailbox, MemoryMailbox};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// let settings = mailbox.settings().await?;
/// if settings.paused {
///     println!("nothing is delivered until the mailbox is resumed");
/// }
/// assert_eq!(settings.max_deliveries, 5);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The number of deliveries after which a message is given up, whether its deliveries failed or its receivers died.
    pub max_deliveries: u32,
    /// Whether deliveries are stopped. Sends still work.
    pub paused: bool,
    /// The limit on deliveries.
    pub rate_limit: Option<RateLimit>,
    /// The limit on deliveries per rate key, or per group for messages without a rate key.
    pub group_rate_limit: Option<RateLimit>,
}

/// A maximum number of deliveries per period. A period starts with the first delivery after the previous period ended.
/// Repeated deliveries of a message count again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct RateLimit {
    /// The maximum number of deliveries in a period; at least 1.
    pub messages: u32,
    /// The length of a period: more than zero, up to 366 days. Stored in seconds.
    #[serde(with = "seconds")]
    pub per: Duration,
}

impl RateLimit {
    /// Creates a limit of this many deliveries per period.
    pub fn new(messages: u32, per: Duration) -> Self {
        Self { messages, per }
    }

    fn check(&self, option: &'static str) -> Result<(), MailboxError> {
        if self.messages == 0 {
            return Err(MailboxError::out_of_range(option, "0", "at least 1 message in a period"));
        }
        positive(option, self.per, MAX_DELAY)
    }

    /// Returns how many more messages `period` allows now, and when it ends. `per` has the unit of `now`.
    pub fn allowance(&self, period: Option<RatePeriod>, now: u64, per: u64) -> (u32, u64) {
        match RatePeriod::current(period, now, per) {
            Some(period) => (self.messages.saturating_sub(period.used), period.began.saturating_add(per)),
            None => (self.messages, now.saturating_add(per)),
        }
    }

    /// Returns the place of a message for which its key has no room before `until`: the period that begins then or
    /// later, with the places of it that are taken. `last` is the last place that was given out. Each place is given out
    /// once, so a long backlog of one key is not examined again in each period.
    pub fn reserve(&self, last: Option<RatePeriod>, until: u64, per: u64) -> RatePeriod {
        match last.filter(|last| last.began >= until) {
            Some(RatePeriod { began, used }) if used < self.messages => RatePeriod { began, used: used + 1 },
            Some(RatePeriod { began, .. }) => RatePeriod { began: began.saturating_add(per), used: 1 },
            None => RatePeriod { began: until, used: 1 },
        }
    }
}

/// The current period of a rate limit and its use.
#[derive(Clone, Copy, Debug)]
pub struct RatePeriod {
    /// The time of the first delivery in the period.
    pub began: u64,
    /// The number of deliveries in the period.
    pub used: u32,
}

impl RatePeriod {
    fn current(period: Option<Self>, now: u64, per: u64) -> Option<Self> {
        period.filter(|period| now < period.began.saturating_add(per))
    }

    /// Returns the period with this many more deliveries. Starts a new period if the given one is over.
    pub fn spend(period: Option<Self>, now: u64, per: u64, messages: u32) -> Self {
        let Self { began, used } = Self::current(period, now, per).unwrap_or(Self { began: now, used: 0 });
        Self { began, used: used.saturating_add(messages) }
    }
}

/// How many messages a mailbox may deliver now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// At most this many.
    AtMost(u32),
    /// None before this time.
    Until(u64),
    /// None until the mailbox is resumed.
    Paused,
}

impl QueueSettings {
    /// Returns how many messages may be delivered now. Calls `period` only if a rate limit applies; it returns the last
    /// period and the length of a period, in the unit of `now`.
    pub fn throttle<E>(
        &self,
        now: u64,
        period: impl FnOnce(&RateLimit) -> Result<(Option<RatePeriod>, u64), E>,
    ) -> Result<Throttle, E> {
        Ok(match &self.rate_limit {
            _ if self.paused => Throttle::Paused,
            None => Throttle::AtMost(u32::MAX),
            Some(rate) => {
                let (period, per) = period(rate)?;
                match rate.allowance(period, now, per) {
                    (0, until) => Throttle::Until(until),
                    (messages, _) => Throttle::AtMost(messages),
                }
            }
        })
    }
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The delivery limit of a mailbox that does not set one.
pub(crate) const DEFAULT_MAX_DELIVERIES: u32 = 5;

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_deliveries: DEFAULT_MAX_DELIVERIES,
            paused: false,
            rate_limit: None,
            group_rate_limit: None,
        }
    }
}

/// A change to a mailbox's settings. Fields that are `None` keep the current value.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, SettingsChange};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// let change = SettingsChange::new().max_deliveries(3).rate_limit(100, Duration::from_mins(1));
/// mailbox.configure(change).await?;
/// // The limits stay while the mailbox is paused.
/// let settings = mailbox.configure(SettingsChange::new().pause()).await?;
/// assert!(settings.paused && settings.max_deliveries == 3);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SettingsChange {
    /// The number of deliveries after which a message is given up; at least 1.
    pub max_deliveries: Option<u32>,
    /// Whether the mailbox is paused.
    pub paused: Option<bool>,
    /// The limit on deliveries. `Some(None)` removes the limit.
    pub rate_limit: Option<Option<RateLimit>>,
    /// The limit on deliveries per rate key and group. `Some(None)` removes the limit.
    pub group_rate_limit: Option<Option<RateLimit>>,
}

impl SettingsChange {
    /// Creates a change that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a message up after this many deliveries; at least 1. A lower limit also applies to the messages already in
    /// the mailbox: those that have reached it become dead letters.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// Stops deliveries until the mailbox is resumed: receivers wait. Sends still work, and leased messages can be
    /// finished.
    pub fn pause(mut self) -> Self {
        self.paused = Some(true);
        self
    }

    /// Resumes deliveries and wakes waiting receivers.
    pub fn resume(mut self) -> Self {
        self.paused = Some(false);
        self
    }

    /// Limits the deliveries to this many messages per period.
    pub fn rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limit = Some(Some(RateLimit { messages, per }));
        self
    }

    /// Removes the limit on deliveries.
    pub fn no_rate_limit(mut self) -> Self {
        self.rate_limit = Some(None);
        self
    }

    /// Limits the deliveries of each [rate key](super::SendOptions::rate_key), and of each group, to this many messages
    /// per period. Messages with neither are not limited.
    pub fn group_rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.group_rate_limit = Some(Some(RateLimit { messages, per }));
        self
    }

    /// Removes the limit on deliveries per rate key and group.
    pub fn no_group_rate_limit(mut self) -> Self {
        self.group_rate_limit = Some(None);
        self
    }

    /// Checks the ranges. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        if let Some(Some(rate)) = &self.rate_limit {
            rate.check("rate_limit")?;
        }
        if let Some(Some(rate)) = &self.group_rate_limit {
            rate.check("group_rate_limit")?;
        }
        match self.max_deliveries {
            Some(0) => Err(MailboxError::out_of_range("max_deliveries", "0", "at least 1")),
            _ => Ok(()),
        }
    }

    /// Returns the settings after the change.
    pub fn applied_to(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            max_deliveries: self.max_deliveries.unwrap_or(settings.max_deliveries),
            paused: self.paused.unwrap_or(settings.paused),
            rate_limit: self.rate_limit.unwrap_or(settings.rate_limit),
            group_rate_limit: self.group_rate_limit.unwrap_or(settings.group_rate_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_removes_both_limits() {
        let minute = Duration::from_mins(1);
        let limit = SettingsChange::new().rate_limit(10, minute).group_rate_limit(2, minute);
        let limited = limit.applied_to(&QueueSettings::default());
        assert_eq!(limited.group_rate_limit, Some(RateLimit::new(2, minute)));
        let free = SettingsChange::new().no_rate_limit().no_group_rate_limit().applied_to(&limited);
        assert_eq!((free.rate_limit, free.group_rate_limit), (None, None));
    }
}
