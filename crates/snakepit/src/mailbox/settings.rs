//! What a mailbox keeps about itself: the same for everybody who opens it, in whichever process.

use super::MailboxError;

/// The settings of a mailbox. They are stored with it, so that all who use it go by the same.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// After so many deliveries a message is given up, whether they failed or their receivers died.
    pub max_deliveries: u32,
}

/// How often a message is delivered unless somebody says otherwise.
pub(crate) const DEFAULT_MAX_DELIVERIES: u32 = 5;

impl Default for QueueSettings {
    fn default() -> Self {
        Self { max_deliveries: DEFAULT_MAX_DELIVERIES }
    }
}

/// A change of a mailbox's settings. What is not named stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SettingsChange {
    /// After so many deliveries a message is given up; at least 1.
    pub max_deliveries: Option<u32>,
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

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
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
        QueueSettings { max_deliveries: self.max_deliveries.unwrap_or(settings.max_deliveries) }
    }
}
