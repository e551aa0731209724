//! How much an engine says. A library is quiet unless its host asks: everything here decides what is *not* said.
//!
//! The engine speaks through `tracing` and leaves the rest to the host's subscriber. Owns the keys of `[log]` and what
//! they mean; knows nothing of pools and workers.

#[cfg(feature = "console")]
mod console;
#[cfg(feature = "grpc")]
mod grpc;

#[cfg(feature = "grpc")]
pub use grpc::{quiet_subscriber, quietly};

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use tracing::Level;

use snakepit_settings::settings;

/// Where lines that workers print are told.
pub const OUTPUT: &str = "snakepit::output";
/// Where the states of progress bars are told that workers print, before the last one, which is a line.
pub const PROGRESS: &str = "snakepit::progress";

/// Up to which level an engine speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogLevel {
    /// Not at all.
    Off,
    /// What cannot go on.
    Error,
    /// What needs attention.
    Warning,
    /// What an operator wants to read: starts and stops.
    Info,
    /// What a developer wants to read.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Info,
            Level::DEBUG => Self::Debug,
            Level::TRACE => Self::Trace,
        }
    }

    fn admits(self, level: Level) -> bool {
        self >= Self::of(level)
    }
}

settings! {
    /// How much an engine says, through `tracing` and to the subscriber of its host.
    ///
    /// By default warnings, and of what workers print only what goes with a call that failed. Nothing is ever printed for a
    /// host that has no subscriber, unless it says [`for_program`](Self::for_program) and has the feature `console`: then a small
    /// subscriber that writes to standard error is installed. A subscriber that the host has set is never replaced; one that
    /// it sets later than the engine's start finds that place taken.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Logging {
        /// Whether the engine is quiet, as befits a library. If not, it speaks at info and forwards what workers print; on
        /// standard error if the host has no subscriber and the library was built with the feature `console`. Each key below
        /// wins over it.
        @manual library_mode: bool = true,
        /// Up to which level the engine speaks: `"off"`, `"error"`, `"warning"`, `"info"`, `"debug"` or `"trace"`. Unset: `"warning"`, or
        /// `"info"` if `library_mode` is false. Example: `log_level = "warning"`.
        @manual log_level: Option<LogLevel> = None,
        /// Up to which level the libraries behind the adapter `"grpc"` speak (h2, hyper, tonic).
        @manual grpc_log_level: LogLevel = LogLevel::Error,
        /// Whether each line that a worker prints is forwarded. If not, those of a call are told when it fails or is late.
        /// Unset: false, or true if `library_mode` is false and `log_level` is at least `"info"`. Example:
        /// `log_python_output = false`.
        @manual log_python_output: Option<bool> = None,
    }
}

/// What is said explicitly holds, whatever the mode.
impl Logging {
    /// For a host that is more than the engine (the default): it speaks of warnings and errors alone.
    pub fn for_library(mut self) -> Self {
        self.library_mode = true;
        self
    }

    /// For a program that is all about the engine: it speaks at info and forwards what workers print, unless that is said
    /// otherwise.
    pub fn for_program(mut self) -> Self {
        self.library_mode = false;
        self
    }

    /// Up to which level it speaks. What is beyond is not even offered to the host's subscriber.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Up to which level the libraries behind gRPC (`h2`, `hyper`, `tonic`) speak where they serve the engine. Of several
    /// engines in one process, the one that lets them say most decides.
    pub fn grpc_log_level(mut self, level: LogLevel) -> Self {
        self.grpc_log_level = level;
        self
    }

    /// Forwards each line that a worker prints, at info and with the target `snakepit::output`, whatever the level of the
    /// rest; the states of a progress bar before its last one at debug, with the target `snakepit::progress`.
    pub fn forward_output(mut self) -> Self {
        self.log_python_output = Some(true);
        self
    }

    /// Shows the lines that a worker prints in a call only when that call fails or is late, at warning.
    pub fn hide_output(mut self) -> Self {
        self.log_python_output = Some(false);
        self
    }
}

/// What follows from what was said.
impl Logging {
    /// Up to which level the engine speaks.
    pub fn level(self) -> LogLevel {
        let usual = if self.library_mode { LogLevel::Warning } else { LogLevel::Info };
        self.log_level.unwrap_or(usual)
    }

    /// Whether an event of this level is said.
    pub fn allows(self, level: Level) -> bool {
        self.level().admits(level)
    }

    /// Whether what workers print is forwarded line by line.
    pub fn forwards_output(self) -> bool {
        self.log_python_output.unwrap_or_else(|| !self.library_mode && self.allows(Level::INFO))
    }

    /// An engine starts that is to speak so.
    pub fn begin(self) {
        LOUDEST.fetch_max(rank(self.level()), Ordering::Relaxed);
        #[cfg(feature = "grpc")]
        grpc::begin(self.grpc_log_level);
        #[cfg(feature = "console")]
        if !self.library_mode {
            console::install();
        }
    }
}

/// The rank of the engine that speaks most, of those that were started in this process; 0 before the first.
static LOUDEST: AtomicU8 = AtomicU8::new(0);

fn rank(level: LogLevel) -> u8 {
    level as u8 + 1
}

/// Whether any engine says events of this level: for places that do not know whose they are.
pub fn somebody_says(level: Level) -> bool {
    let loudest = match LOUDEST.load(Ordering::Relaxed) {
        0 => rank(Logging::default().level()),
        rank => rank,
    };
    loudest >= rank(LogLevel::of(level))
}

/// Until what was said is written, if it is us who write it; not for long.
#[cfg_attr(not(feature = "console"), expect(clippy::unused_async, reason = "then nothing is written by us"))]
pub async fn flush() {
    #[cfg(feature = "console")]
    console::flush().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(logging: Logging) -> (LogLevel, LogLevel, bool) {
        (logging.level(), logging.grpc_log_level, logging.forwards_output())
    }

    #[test]
    fn a_library_is_quiet_and_a_program_is_not() {
        assert_eq!(meaning(Logging::default()), (LogLevel::Warning, LogLevel::Error, false));
        let program = Logging::default().for_program();
        assert_eq!(meaning(program), (LogLevel::Info, LogLevel::Error, true));
    }

    #[test]
    fn what_is_said_explicitly_wins_over_the_mode() {
        for mode in [Logging::for_library, Logging::for_program] {
            let said = Logging::default().log_level(LogLevel::Debug).hide_output();
            assert_eq!(meaning(mode(said)), (LogLevel::Debug, LogLevel::Error, false));
            let said = Logging::default().log_level(LogLevel::Off).forward_output();
            assert_eq!(meaning(mode(said)), (LogLevel::Off, LogLevel::Error, true));
        }
    }

    #[test]
    fn lines_that_nobody_asked_for_keep_to_the_level() {
        let logging = Logging::default().for_program().log_level(LogLevel::Error);
        assert!(!logging.forwards_output());
    }

    #[test]
    fn a_level_admits_itself_and_what_is_graver() {
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let levels = [LogLevel::Error, LogLevel::Warning, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        for (index, level) in levels.into_iter().enumerate() {
            let admitted = all.into_iter().filter(|it| level.admits(*it)).count();
            assert_eq!(admitted, index + 1, "{level:?}");
        }
        assert!(!all.into_iter().any(|level| LogLevel::Off.admits(level)));
    }
}
