//! How much an engine logs. A library is quiet unless its host asks for more, so this module decides what is *not*
//! logged.
//!
//! The engine logs through `tracing` and leaves the rest to the host's subscriber. This module owns the keys of `[log]`
//! and their meaning. It knows nothing of pools and workers.

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

/// The target of the lines that workers print.
pub const OUTPUT: &str = "snakepit::output";
/// The target of the earlier states of progress bars that workers print. The last state is a line.
pub const PROGRESS: &str = "snakepit::progress";

/// The level up to which an engine logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing is logged.
    Off,
    /// Errors that prevent further work.
    Error,
    /// Events that need attention.
    Warning,
    /// Events that an operator wants to read: starts and stops.
    Info,
    /// Events that a developer wants to read.
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
    /// How much an engine logs, through `tracing` to the subscriber of its host.
    ///
    /// By default the engine logs warnings, and of the lines that workers print only those of failed calls. Nothing is
    /// ever printed for a host without a subscriber, unless the host uses [`for_program`](Self::for_program) and the
    /// feature `console`. Then the engine installs a small subscriber that writes to standard error. It never replaces
    /// a subscriber of the host, but a subscriber that the host sets after the engine's start finds the place taken.
    ///
    /// ```
    /// use snakepit::telemetry::{LogLevel, Logging};
    /// use snakepit::{Snakepit, python};
    ///
    /// let logging = Logging::default().for_program().log_level(LogLevel::Debug);
    /// let builder = Snakepit::builder().pool(python("worker.py")).logging(logging);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Logging {
        /// Whether the engine is quiet, as a library should be. If not, it logs at info and forwards what workers
        /// print, to standard error if the host has no subscriber and the library was built with the feature `console`.
        /// Each key below overrides it.
        @manual library_mode: bool = true,
        /// The level up to which the engine logs: `"off"`, `"error"`, `"warning"`, `"info"`, `"debug"` or `"trace"`.
        /// Unset: `"warning"`, or `"info"` if `library_mode` is false. Example: `log_level = "warning"`.
        @manual log_level: Option<LogLevel> = None,
        /// The level up to which the libraries behind the adapter `"grpc"` log (h2, hyper, tonic).
        @manual grpc_log_level: LogLevel = LogLevel::Error,
        /// Whether each line that a worker prints is forwarded. If not, the lines of a call are logged when it fails or
        /// is late. Unset: false, or true if `library_mode` is false and `log_level` is at least `"info"`. Example:
        /// `log_python_output = false`.
        @manual log_python_output: Option<bool> = None,
    }
}

/// Setters. An explicit setting overrides the mode.
impl Logging {
    /// Sets the mode for a host that does more than run the engine. This is the default. The engine logs only warnings
    /// and errors.
    pub fn for_library(mut self) -> Self {
        self.library_mode = true;
        self
    }

    /// Sets the mode for a program whose purpose is the engine. The engine logs at info and forwards what workers
    /// print, unless set otherwise.
    pub fn for_program(mut self) -> Self {
        self.library_mode = false;
        self
    }

    /// Sets the level up to which the engine logs. Events beyond it are not even offered to the host's subscriber.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Sets the level up to which the libraries behind gRPC (`h2`, `hyper`, `tonic`) log when they work for the engine.
    /// If a process has several engines, the most verbose setting applies.
    pub fn grpc_log_level(mut self, level: LogLevel) -> Self {
        self.grpc_log_level = level;
        self
    }

    /// Forwards each line that a worker prints, at info and with the target `snakepit::output`, whatever the level of
    /// the engine. The earlier states of a progress bar are logged at debug, with the target `snakepit::progress`.
    pub fn forward_output(mut self) -> Self {
        self.log_python_output = Some(true);
        self
    }

    /// Logs the lines that a worker prints in a call only when that call fails or is late, at warning.
    pub fn hide_output(mut self) -> Self {
        self.log_python_output = Some(false);
        self
    }
}

/// The meaning of the settings.
impl Logging {
    /// Returns the level up to which the engine logs.
    pub fn level(self) -> LogLevel {
        let usual = if self.library_mode { LogLevel::Warning } else { LogLevel::Info };
        self.log_level.unwrap_or(usual)
    }

    /// Reports whether events of this level are logged.
    pub fn allows(self, level: Level) -> bool {
        self.level().admits(level)
    }

    /// Reports whether the output of workers is forwarded line by line.
    pub fn forwards_output(self) -> bool {
        self.log_python_output.unwrap_or_else(|| !self.library_mode && self.allows(Level::INFO))
    }

    /// Applies the settings of an engine that starts.
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

/// The rank of the most verbose engine that was started in this process. 0 before the first.
static LOUDEST: AtomicU8 = AtomicU8::new(0);

fn rank(level: LogLevel) -> u8 {
    level as u8 + 1
}

/// Reports whether any engine logs events of this level. For code that does not know its engine.
pub fn somebody_says(level: Level) -> bool {
    let loudest = match LOUDEST.load(Ordering::Relaxed) {
        0 => rank(Logging::default().level()),
        rank => rank,
    };
    loudest >= rank(LogLevel::of(level))
}

/// Waits a short time until all lines are written, if the console writes them.
#[cfg_attr(
    not(feature = "console"),
    expect(clippy::unused_async, reason = "without the console there is nothing to wait for")
)]
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
    fn library_logging_is_quiet_and_program_logging_is_not() {
        assert_eq!(meaning(Logging::default()), (LogLevel::Warning, LogLevel::Error, false));
        let program = Logging::default().for_program();
        assert_eq!(meaning(program), (LogLevel::Info, LogLevel::Error, true));
    }

    #[test]
    fn explicit_settings_override_the_mode() {
        for mode in [Logging::for_library, Logging::for_program] {
            let said = Logging::default().log_level(LogLevel::Debug).hide_output();
            assert_eq!(meaning(mode(said)), (LogLevel::Debug, LogLevel::Error, false));
            let said = Logging::default().log_level(LogLevel::Off).forward_output();
            assert_eq!(meaning(mode(said)), (LogLevel::Off, LogLevel::Error, true));
        }
    }

    #[test]
    fn output_is_forwarded_only_if_the_level_allows_info() {
        let logging = Logging::default().for_program().log_level(LogLevel::Error);
        assert!(!logging.forwards_output());
    }

    #[test]
    fn a_level_admits_itself_and_more_severe_ones() {
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let levels = [LogLevel::Error, LogLevel::Warning, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        for (index, level) in levels.into_iter().enumerate() {
            let admitted = all.into_iter().filter(|it| level.admits(*it)).count();
            assert_eq!(admitted, index + 1, "{level:?}");
        }
        assert!(!all.into_iter().any(|level| LogLevel::Off.admits(level)));
    }
}
