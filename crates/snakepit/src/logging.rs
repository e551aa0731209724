//! How much an engine says. A library is quiet unless its host asks: everything here decides what is *not* said.
//!
//! The engine speaks through `tracing` and leaves the rest to the host's subscriber. Owns the keys of `[log]` and what
//! they mean; knows nothing of pools and workers.

#[cfg(feature = "console")]
mod console;
#[cfg(feature = "grpc")]
mod grpc;

#[cfg(feature = "grpc")]
pub(crate) use grpc::quietly;

use std::sync::atomic::{AtomicU8, Ordering};

use tracing::Level;

/// Where lines that workers print are told.
pub(crate) const OUTPUT: &str = "snakepit::output";
/// Where the states of progress bars are told that workers print, before the last one, which is a line.
pub(crate) const PROGRESS: &str = "snakepit::progress";

/// Up to which level an engine speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "config", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LogLevel {
    /// Not at all.
    Off,
    /// What cannot go on.
    Error,
    /// What somebody should look at.
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

/// How much an engine says, through `tracing` and to the subscriber of its host.
///
/// By default warnings, and of what workers print only what goes with a call that failed. Nothing is ever printed for a
/// host that has no subscriber, unless it says `library_mode(false)` and has the feature `console`: then a small
/// subscriber that writes to standard error is installed. A subscriber that the host has set is never replaced; one that
/// it sets later than the engine's start finds that place taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Logging {
    library_mode: bool,
    log_level: Option<LogLevel>,
    grpc_log_level: LogLevel,
    log_python_output: Option<bool>,
}

impl Default for Logging {
    fn default() -> Self {
        Self { library_mode: true, log_level: None, grpc_log_level: LogLevel::Error, log_python_output: None }
    }
}

/// What is said explicitly holds, whatever the mode.
impl Logging {
    /// Whether the engine is a guest in a program of others (the default), or all that the program is about: then it
    /// speaks at info and forwards what workers print, unless that is said otherwise.
    pub fn library_mode(mut self, library_mode: bool) -> Self {
        self.library_mode = library_mode;
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

    /// Whether each line that a worker prints is forwarded, at info and with the target `snakepit::output`, whatever
    /// the level of the rest; the states of a progress bar before its last one at debug, with the target
    /// `snakepit::progress`. If not, the lines of a call are told at warning when it fails or is late.
    pub fn log_python_output(mut self, forward: bool) -> Self {
        self.log_python_output = Some(forward);
        self
    }
}

/// What follows from what was said.
impl Logging {
    pub(crate) fn level(self) -> LogLevel {
        let usual = if self.library_mode { LogLevel::Warning } else { LogLevel::Info };
        self.log_level.unwrap_or(usual)
    }

    /// Whether an event of this level is said.
    pub(crate) fn allows(self, level: Level) -> bool {
        self.level().admits(level)
    }

    /// Whether what workers print is forwarded line by line.
    pub(crate) fn forwards_output(self) -> bool {
        self.log_python_output.unwrap_or_else(|| !self.library_mode && self.allows(Level::INFO))
    }

    /// An engine starts that is to speak so.
    pub(crate) fn begin(self) {
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
pub(crate) fn somebody_says(level: Level) -> bool {
    let loudest = match LOUDEST.load(Ordering::Relaxed) {
        0 => rank(Logging::default().level()),
        rank => rank,
    };
    loudest >= rank(LogLevel::of(level))
}

/// Until what was said is written, if it is us who write it; not for long.
#[cfg_attr(not(feature = "console"), expect(clippy::unused_async, reason = "then nothing is written by us"))]
pub(crate) async fn flush() {
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
        let program = Logging::default().library_mode(false);
        assert_eq!(meaning(program), (LogLevel::Info, LogLevel::Error, true));
    }

    #[test]
    fn what_is_said_explicitly_wins_over_the_mode() {
        for mode in [true, false] {
            let said = Logging::default().log_level(LogLevel::Debug).log_python_output(false);
            assert_eq!(meaning(said.library_mode(mode)), (LogLevel::Debug, LogLevel::Error, false));
            let said = Logging::default().log_level(LogLevel::Off).log_python_output(true);
            assert_eq!(meaning(said.library_mode(mode)), (LogLevel::Off, LogLevel::Error, true));
        }
    }

    #[test]
    fn lines_that_nobody_asked_for_keep_to_the_level() {
        let logging = Logging::default().library_mode(false).log_level(LogLevel::Error);
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
