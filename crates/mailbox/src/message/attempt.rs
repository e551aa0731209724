//! The record of a message's failed deliveries.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// The number of attempts kept per message: the most recent ones, plus the most recent one with an error.
pub(crate) const MAX_ATTEMPTS: usize = 16;
/// The maximum length of a stored error. Longer errors are truncated.
const MAX_ERROR_BYTES: usize = 2048;

/// One delivery that ended without an ack.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The number of this delivery, counted from 1.
    pub delivery: u32,
    /// The start of the delivery by the wall clock, for display only.
    pub began_at: SystemTime,
    /// How long the receiver held the message.
    pub took: Duration,
    /// The process that held the message, as `HOST/PROCESS`.
    pub holder: String,
    /// How the delivery ended.
    pub end: AttemptEnd,
    /// The error that the holder reported, if any; at most 2 KiB.
    pub error: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// The holder gave the message back.
    Nack,
    /// The lease ran out because the holder died or took too long.
    Lapse,
    /// The message was moved to the dead letters.
    Bury,
}

impl AttemptEnd {
    /// Returns the number that the SQLite file stores for this variant.
    #[cfg(feature = "sqlite")]
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Nack => 0,
            Self::Lapse => 1,
            Self::Bury => 2,
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn of_number(number: i64) -> Self {
        match number {
            0 => Self::Nack,
            1 => Self::Lapse,
            _ => Self::Bury,
        }
    }
}

impl Attempt {
    /// Creates the record of a delivery that ended now in this process. A long error is truncated.
    pub fn new(
        delivery: u32,
        began_at: SystemTime,
        took: Duration,
        end: AttemptEnd,
        error: Option<&str>,
    ) -> Self {
        let (holder, error) = (this_process(), error.map(shortened));
        Self { delivery, began_at, took, holder, end, error }
    }
}

/// Returns the error, truncated to the stored length.
pub(crate) fn shortened(error: &str) -> String {
    if error.len() <= MAX_ERROR_BYTES {
        return error.to_owned();
    }
    let mark = "…";
    let mut end = MAX_ERROR_BYTES - mark.len();
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &error[..end])
}

/// Adds an attempt. If there are more than 16, drops the oldest ones, but keeps the last attempt with an error.
pub fn remember_attempt(attempts: &mut Vec<Attempt>, attempt: Attempt) {
    attempts.push(attempt);
    if attempts.len() > MAX_ATTEMPTS {
        let last_error = attempts.iter().rposition(|attempt| attempt.error.is_some());
        let excess = attempts.len() - MAX_ATTEMPTS;
        let mut place = 0;
        attempts.retain(|_| {
            place += 1;
            place > excess || last_error == Some(place - 1)
        });
    }
}

/// Returns the identity of this process as `HOST/PROCESS`.
pub fn this_process() -> String {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    format!("{host}/{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(delivery: u32, error: Option<&str>) -> Attempt {
        Attempt::new(delivery, SystemTime::UNIX_EPOCH, Duration::ZERO, AttemptEnd::Lapse, error)
    }

    #[test]
    fn the_last_attempts_are_remembered_and_the_last_error() {
        let mut attempts = Vec::new();
        for delivery in 1..=100 {
            remember_attempt(&mut attempts, attempt(delivery, (delivery == 3).then_some("no such key")));
        }
        assert_eq!(attempts.len(), MAX_ATTEMPTS + 1);
        assert_eq!((attempts[0].delivery, attempts[0].error.as_deref()), (3, Some("no such key")));
        assert_eq!((attempts[1].delivery, attempts[MAX_ATTEMPTS].delivery), (85, 100));
        remember_attempt(&mut attempts, attempt(101, Some("another")));
        assert_eq!((attempts.len(), attempts[0].delivery), (MAX_ATTEMPTS, 86));
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let long = shortened(&"ä".repeat(5000));
        assert!(long.len() <= MAX_ERROR_BYTES && long.ends_with("ä…"), "{}", long.len());
        assert_eq!(shortened("short"), "short");
    }
}
