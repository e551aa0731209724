//! When a message is given up, and how long a failed one waits.

use std::time::Duration;

use super::{MailboxError, SettingsChange};

/// Names of errors that another try cannot mend: the message has arguments that its command does not take.
pub const BAD_ARGUMENTS: [&str; 2] = ["Arguments", "bad_argument"];

/// When messages become dead letters.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DeadLetterPolicy {
    /// After so many deliveries, counted when they are made; at least 1. It is written to the mailbox's
    /// [settings](super::QueueSettings), where all who use it find it. None: as the mailbox has it.
    pub max_deliveries: Option<u32>,
    /// Names of errors that bury a message at once; [`BAD_ARGUMENTS`] unless it is set.
    pub include: Vec<String>,
    /// Names of errors that never do by themselves, whatever `include` says.
    pub exclude: Vec<String>,
    /// How long one that failed waits before it is received again.
    pub backoff: Backoff,
}

impl Default for DeadLetterPolicy {
    fn default() -> Self {
        Self {
            max_deliveries: None,
            include: BAD_ARGUMENTS.map(str::to_owned).to_vec(),
            exclude: Vec::new(),
            backoff: Backoff::default(),
        }
    }
}

/// What becomes of a message whose handling failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterFailure {
    /// It comes again after this.
    Again(Duration),
    /// It is buried.
    Bury,
}

impl DeadLetterPolicy {
    /// After as many deliveries as the mailbox says, and at once if the arguments are wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// After so many deliveries; at least 1.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// An error of this name buries a message at once.
    pub fn include(mut self, error: impl Into<String>) -> Self {
        self.include.push(error.into());
        self
    }

    /// An error of this name never does by itself.
    pub fn exclude(mut self, error: impl Into<String>) -> Self {
        self.exclude.push(error.into());
        self
    }

    /// How long one that failed waits before it is received again.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        self.settings_change().check()
    }

    /// What it changes in the settings of a mailbox.
    pub fn settings_change(&self) -> SettingsChange {
        SettingsChange { max_deliveries: self.max_deliveries, ..SettingsChange::default() }
    }

    /// Whether an error of this name buries a message, however often it was delivered.
    pub fn buries_at_once(&self, error: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == error);
        named(&self.include) && !named(&self.exclude)
    }

    /// What becomes of a message that failed with an error of this name at its delivery number `deliveries` of `limit`.
    /// `chance` is between 0 and 1.
    pub fn after_failure(&self, error: &str, deliveries: u32, limit: u32, chance: f64) -> AfterFailure {
        if self.buries_at_once(error) || deliveries >= limit {
            AfterFailure::Bury
        } else {
            AfterFailure::Again(self.backoff.pause(deliveries, chance))
        }
    }
}

/// Pauses that double, spread by chance.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// Which part of a pause is left to chance, 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_mins(5))
    }
}

impl Backoff {
    /// Pauses from the first to the longest, a quarter of each left to chance.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, jitter: 0.25 }
    }

    /// Leaves this part of each pause to chance, 0 to 1.
    pub const fn jitter(mut self, part: f64) -> Self {
        self.jitter = part;
        self
    }

    /// The pause after so many deliveries; `chance` is between 0 and 1.
    pub fn pause(&self, deliveries: u32, chance: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(deliveries.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let spread = self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0);
        // NaN and overflow must not panic while a failure is handled.
        Duration::try_from_secs_f64(whole.as_secs_f64() * (1.0 - spread)).unwrap_or(whole).min(whole)
    }
}
