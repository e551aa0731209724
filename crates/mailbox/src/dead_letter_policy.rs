//! Decides when a message is given up, and how long a failed message waits.

use std::time::Duration;

use super::{MailboxError, SettingsChange};
use snakepit_settings::setters;

/// Names of errors that a retry cannot fix: the command does not accept the message's arguments.
pub const BAD_ARGUMENTS: [&str; 2] = ["Arguments", "bad_argument"];

/// The policy that decides when messages become dead letters.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Backoff, DeadLetterPolicy};
///
/// let policy = DeadLetterPolicy::new()
///     .max_deliveries(3)
///     .include("KeyError")
///     .backoff(Backoff::new(Duration::from_secs(1), Duration::from_mins(1)));
/// assert!(policy.buries_at_once("KeyError"));
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DeadLetterPolicy {
    /// The number of deliveries after which a message is given up, counted when a delivery starts; at least 1. The
    /// number is stored in the mailbox's [settings](super::QueueSettings), which all users of the mailbox share. `None`
    /// keeps the mailbox's own limit.
    pub max_deliveries: Option<u32>,
    /// Names of errors that bury a message at once. The default is [`BAD_ARGUMENTS`].
    pub include: Vec<String>,
    /// Names of errors that never bury a message at once, even if `include` has them. The delivery limit still applies.
    pub exclude: Vec<String>,
    /// How long a failed message waits before it can be received again.
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

/// What happens to a message after its handling failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterFailure {
    /// The message can be received again after this delay.
    Again(Duration),
    /// The message is buried.
    Bury,
}

impl DeadLetterPolicy {
    /// Creates a policy with the mailbox's own delivery limit that buries a message with wrong arguments at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Buries a message at once after an error of this name.
    pub fn include(mut self, error: impl Into<String>) -> Self {
        self.include.push(error.into());
        self
    }

    /// Never buries a message at once after an error of this name. The delivery limit still applies.
    pub fn exclude(mut self, error: impl Into<String>) -> Self {
        self.exclude.push(error.into());
        self
    }

    /// Checks the policy. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        self.settings_change().check()
    }

    /// Returns the policy's change to the settings of a mailbox.
    pub fn settings_change(&self) -> SettingsChange {
        SettingsChange { max_deliveries: self.max_deliveries, ..SettingsChange::default() }
    }

    /// Reports whether an error of this name buries a message regardless of its delivery count.
    pub fn buries_at_once(&self, error: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == error);
        named(&self.include) && !named(&self.exclude)
    }

    /// Decides what happens to a message that failed with an error of this name at delivery `deliveries` of `limit`.
    /// `chance` is a random number between 0 and 1.
    pub fn after_failure(&self, error: &str, deliveries: u32, limit: u32, chance: f64) -> AfterFailure {
        if self.buries_at_once(error) || deliveries >= limit {
            AfterFailure::Bury
        } else {
            AfterFailure::Again(self.backoff.pause(deliveries, chance))
        }
    }
}

setters! {
    impl DeadLetterPolicy;

    /// Gives a message up after this many deliveries; at least 1.
    max_deliveries(deliveries: u32) = Some(deliveries);

    /// Sets how long a failed message waits before it can be received again.
    backoff(backoff: Backoff) = backoff;
}

/// Exponential backoff with jitter: each pause is twice as long as the previous one.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::Backoff;
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10)).jitter(0.0);
/// let pauses = [1, 2, 3, 4, 5].map(|deliveries| backoff.pause(deliveries, 0.5).as_secs());
/// assert_eq!(pauses, [1, 2, 4, 8, 10]);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// The fraction of a pause that is random, 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_mins(5))
    }
}

impl Backoff {
    /// Creates a backoff with pauses from `first` to `longest` and a jitter of a quarter.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, jitter: 0.25 }
    }

    /// Sets the fraction of each pause that is random, 0 to 1.
    pub const fn jitter(mut self, part: f64) -> Self {
        self.jitter = part;
        self
    }

    /// Returns the pause after this many deliveries. `chance` is a random number between 0 and 1.
    pub fn pause(&self, deliveries: u32, chance: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(deliveries.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let spread = self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0);
        // NaN and overflow must not panic while a failure is handled.
        Duration::try_from_secs_f64(whole.as_secs_f64() * (1.0 - spread)).unwrap_or(whole).min(whole)
    }
}
