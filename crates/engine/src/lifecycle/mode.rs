//! How a script ends its process, and whether it stops the engine: the modes, their names, and their parsing.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// What a script does with its process after the shutdown.
///
/// ```
/// use snakepit::lifecycle::ExitMode;
/// use snakepit::{Snakepit, python};
///
/// let engine = Snakepit::builder().pool(python("worker.py"));
/// let script = snakepit::script(engine).exit_mode(ExitMode::Stop);
/// assert_eq!("stop".parse(), Ok(ExitMode::Stop));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExitMode {
    /// Returns to its caller.
    #[default]
    None,
    /// Ends the process at once: no destructors, no exit hooks, no output.
    Halt,
    /// Ends the process in order: exit hooks, then `exit`. The script does not return.
    Stop,
    /// `Stop` if this script started the engine and the process was started with `--no-halt` (or `SNAKEPIT_NO_HALT=1`),
    /// otherwise `None`.
    Auto,
}

/// Whether a script stops the engine.
///
/// ```
/// use snakepit::lifecycle::StopMode;
/// use snakepit::{Snakepit, python};
///
/// // The engine that the script starts stays for the rest of the program.
/// let engine = Snakepit::builder().pool(python("worker.py"));
/// let script = snakepit::script(engine).stop_mode(StopMode::Never);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopMode {
    /// If the script started the engine.
    #[default]
    IfStarted,
    /// Always, even if the engine was started elsewhere.
    Always,
    /// Never.
    Never,
}

/// The error for an unknown value of a script's option. Nothing was started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{value:?} is not a value of {option}: the values are {allowed}")]
#[non_exhaustive]
pub struct ArgumentError {
    /// The option.
    pub option: &'static str,
    /// The unknown value.
    pub value: String,
    /// The known values.
    pub allowed: &'static str,
}

impl From<Infallible> for ArgumentError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl ExitMode {
    /// Returns what the script does, once it is known who started the engine.
    pub(super) fn resolve(self, owned: bool, no_halt: bool) -> ExitAction {
        match self {
            Self::Halt => ExitAction::Halt,
            Self::Stop => ExitAction::Stop,
            Self::Auto if owned && no_halt => ExitAction::Stop,
            Self::None | Self::Auto => ExitAction::Return,
        }
    }
}

impl StopMode {
    /// Reports whether the script stops the engine.
    pub(super) fn stops(self, owned: bool) -> bool {
        match self {
            Self::IfStarted => owned,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// An [`ExitMode`] without `auto`: what the script actually does. (`custody::Exit` describes how a process ended.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitAction {
    Return,
    Halt,
    Stop,
}

impl ExitAction {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Return => ExitMode::None.as_str(),
            Self::Halt => ExitMode::Halt.as_str(),
            Self::Stop => ExitMode::Stop.as_str(),
        }
    }
}

impl ExitMode {
    /// Parses the value of an environment variable. Surrounding blanks and case do not matter.
    pub(super) fn from_variable(text: &str) -> Result<Self, ArgumentError> {
        text.trim().to_ascii_lowercase().parse()
    }
}

/// Gives the modes of a script's option their names, which are parsed exactly as written.
macro_rules! named_modes {
    ($mode:ident, $option:literal, $allowed:literal: $($variant:ident = $name:literal),+) => {
        impl $mode {
            /// Returns the mode's name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl FromStr for $mode {
            type Err = ArgumentError;

            /// Parses a name, exactly as written.
            fn from_str(text: &str) -> Result<Self, ArgumentError> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(ArgumentError { option: $option, value: text.to_owned(), allowed: $allowed }),
                }
            }
        }

        impl TryFrom<&str> for $mode {
            type Error = ArgumentError;

            fn try_from(text: &str) -> Result<Self, ArgumentError> {
                text.parse()
            }
        }

        impl fmt::Display for $mode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named_modes!(ExitMode, "exit_mode", "none, halt, stop and auto":
    None = "none", Halt = "halt", Stop = "stop", Auto = "auto");
named_modes!(StopMode, "stop_mode", "if_started, always and never":
    IfStarted = "if_started", Always = "always", Never = "never");
