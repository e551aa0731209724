//! The record of a message's deliveries that did not finish it.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// How many attempts a message remembers: the last ones, and the last one that had an error.
pub(crate) const MAX_ATTEMPTS: usize = 16;
/// Longer errors are cut.
const MAX_ERROR_BYTES: usize = 2048;

/// One delivery that ended without an ack.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Which delivery it was.
    pub delivery: u32,
    /// When it began, by the wall clock, for people.
    pub began_at: SystemTime,
    /// How long the message was held.
    pub took: Duration,
    /// Who held it, as `HOST/PROCESS`.
    pub holder: String,
    /// How it ended.
    pub end: AttemptEnd,
    /// What went wrong, if the holder said so; at most 2 KiB.
    pub error: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// It was given back.
    Nack,
    /// Its lease ran out: the holder died, or took too long.
    Lapse,
    /// It was moved to the dead letters.
    Bury,
}

impl AttemptEnd {
    /// As the SQLite file keeps it.
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
    /// A delivery that ended now, in this process. A long error is cut.
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

/// The error as it is kept.
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

/// Adds an attempt, and forgets the oldest ones if there are more than 16. The last one with an error stays.
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

/// Who this process is: `HOST/PROCESS`.
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
