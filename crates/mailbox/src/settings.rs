//! What a mailbox keeps about itself: the same for everybody who opens it, in whichever process.

use std::time::Duration;

use super::MailboxError;
use super::options::{MAX_DELAY, positive};

/// The settings of a mailbox. They are stored with it, so that all who use it go by the same.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// After so many deliveries a message is given up, whether they failed or their receivers died.
    pub max_deliveries: u32,
    /// Nothing is delivered; sends go on.
    pub paused: bool,
    /// No more messages than this are given out.
    pub rate_limit: Option<RateLimit>,
    /// No more messages of one group than this are given out.
    pub group_rate_limit: Option<RateLimit>,
}

/// So many messages in each period. A period begins with the first message that is given out after the last period ended.
/// Messages that come again count again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RateLimit {
    /// At least 1.
    pub messages: u32,
    /// How long a period is: more than nothing, up to 366 days. Stored in seconds.
    #[serde(with = "seconds")]
    pub per: Duration,
}

impl RateLimit {
    fn check(&self, option: &'static str) -> Result<(), MailboxError> {
        if self.messages == 0 {
            return Err(MailboxError::out_of_range(option, "0", "at least 1 message in a period"));
        }
        positive(option, self.per, MAX_DELAY)
    }

    /// How many more messages `period` allows now, and when it ends. `per` has the unit of `now`.
    pub fn allowance(&self, period: Option<RatePeriod>, now: u64, per: u64) -> (u32, u64) {
        match RatePeriod::current(period, now, per) {
            Some(period) => (self.messages.saturating_sub(period.used), period.began.saturating_add(per)),
            None => (self.messages, now.saturating_add(per)),
        }
    }
}

/// How much of a rate limit is used.
#[derive(Clone, Copy, Debug)]
pub struct RatePeriod {
    /// When the first message of the period was delivered.
    pub began: u64,
    /// How many messages were delivered since.
    pub used: u32,
}

impl RatePeriod {
    fn current(period: Option<Self>, now: u64, per: u64) -> Option<Self> {
        period.filter(|period| now < period.began.saturating_add(per))
    }

    /// The period after so many messages were delivered.
    pub fn spend(period: Option<Self>, now: u64, per: u64, messages: u32) -> Self {
        let Self { began, used } = Self::current(period, now, per).unwrap_or(Self { began: now, used: 0 });
        Self { began, used: used.saturating_add(messages) }
    }
}

/// How many messages a mailbox may deliver now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// This many.
    AtMost(u32),
    /// None before this time.
    Until(u64),
    /// None before somebody resumes the mailbox.
    Paused,
}

impl QueueSettings {
    /// How many messages may be delivered now. Asks for the period of the rate limit only if there is one; `period` gives it with the limit's length, in the unit of `now`.
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

/// The delivery limit of a mailbox that sets none.
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

/// A change of a mailbox's settings. What is not named stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SettingsChange {
    /// After so many deliveries a message is given up; at least 1.
    pub max_deliveries: Option<u32>,
    /// Whether it is paused.
    pub paused: Option<bool>,
    /// How many messages are given out; `Some(None)`: as many as are asked for.
    pub rate_limit: Option<Option<RateLimit>>,
    /// The same for each group.
    pub group_rate_limit: Option<Option<RateLimit>>,
}

impl SettingsChange {
    /// Changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A message is given up after so many deliveries; at least 1. A limit that is lowered also holds for the messages that are
    /// there: those that were delivered as often already become dead letters.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// Delivers nothing until it is resumed: receivers wait. Sends go on, and leased messages can be finished.
    pub fn pause(mut self) -> Self {
        self.paused = Some(true);
        self
    }

    /// Delivers messages again, and wakes waiting receivers.
    pub fn resume(mut self) -> Self {
        self.paused = Some(false);
        self
    }

    /// Gives out no more than so many messages in each period.
    pub fn rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limit = Some(Some(RateLimit { messages, per }));
        self
    }

    /// Gives out as many as are asked for.
    pub fn no_rate_limit(mut self) -> Self {
        self.rate_limit = Some(None);
        self
    }

    /// Gives out no more than so many messages of one group in each period. Messages without a group are not limited by it.
    pub fn group_rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.group_rate_limit = Some(Some(RateLimit { messages, per }));
        self
    }

    /// Gives out as many of a group as are asked for.
    pub fn no_group_rate_limit(mut self) -> Self {
        self.group_rate_limit = Some(None);
        self
    }

    /// Every backend asks this first.
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

    /// The settings after the change.
    pub fn applied_to(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            max_deliveries: self.max_deliveries.unwrap_or(settings.max_deliveries),
            paused: self.paused.unwrap_or(settings.paused),
            rate_limit: self.rate_limit.unwrap_or(settings.rate_limit),
            group_rate_limit: self.group_rate_limit.unwrap_or(settings.group_rate_limit),
        }
    }
}
