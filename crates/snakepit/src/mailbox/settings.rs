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
    /// Nothing is given out; sends go on.
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
            let range = "at least 1 message in a period".into();
            return Err(MailboxError::OutOfRange { option, value: "0".into(), range });
        }
        positive(option, self.per, MAX_DELAY)
    }

    /// How many more may be given out now, and when the period ends, in the unit of `per`. None: no period has begun.
    pub(crate) fn allowance(&self, period: Option<(u64, u32)>, now: u64, per: u64) -> (u32, u64) {
        match period {
            Some((began, used)) if now < began.saturating_add(per) => {
                (self.messages.saturating_sub(used), began.saturating_add(per))
            }
            _ => (self.messages, now.saturating_add(per)),
        }
    }

    /// The period after so many were given out.
    pub(crate) fn spent(period: Option<(u64, u32)>, now: u64, per: u64, messages: u32) -> (u64, u32) {
        match period {
            Some((began, used)) if now < began.saturating_add(per) => (began, used.saturating_add(messages)),
            _ => (now, messages),
        }
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

/// How often a message is delivered unless somebody says otherwise.
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

    /// Gives nothing out until it is resumed: receivers wait. Sends go on, and what is with receivers can be finished.
    pub fn pause(mut self) -> Self {
        self.paused = Some(true);
        self
    }

    /// Gives messages out again: whoever waits is woken.
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
            Some(0) => Err(MailboxError::OutOfRange {
                option: "max_deliveries",
                value: "0".into(),
                range: "at least 1".into(),
            }),
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
