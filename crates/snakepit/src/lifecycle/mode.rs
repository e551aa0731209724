//! How a script ends its process, and whether it stops the engine: the words, and how they are read.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// What a script does with the process when its engine is stopped and all is cleaned up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExitMode {
    /// Returns, or fails, to its caller.
    #[default]
    None,
    /// Ends the process at once: no destructors, no exit hooks, no output.
    Halt,
    /// Ends the process in order: exit hooks, then `exit`. The caller waits for the end.
    Stop,
    /// `Stop` if this script started the engine and the process was started with `--no-halt` (or with
    /// `SNAKEPIT_NO_HALT=1`), else `None`.
    Auto,
}

/// Whether a script stops the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopMode {
    /// If it has started it.
    #[default]
    IfStarted,
    /// In any case, even if it is somebody else's.
    Always,
    /// In no case.
    Never,
}

/// An option of a script has a value that there is not. Nothing was started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{value:?} is not a value of {option}: there are {allowed}")]
pub struct ArgumentError {
    /// The option.
    pub option: &'static str,
    /// What it was given.
    pub value: String,
    /// What it can be given.
    pub allowed: &'static str,
}

impl From<Infallible> for ArgumentError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl ExitMode {
    /// What it comes to, once it is known who started the engine.
    pub(super) fn resolve(self, owned: bool, no_halt: bool) -> Exit {
        match self {
            Self::Halt => Exit::Halt,
            Self::Stop => Exit::Stop,
            Self::Auto if owned && no_halt => Exit::Stop,
            Self::None | Self::Auto => Exit::Return,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Halt => "halt",
            Self::Stop => "stop",
            Self::Auto => "auto",
        }
    }
}

impl StopMode {
    /// Whether the engine is stopped.
    pub(super) fn stops(self, owned: bool) -> bool {
        match self {
            Self::IfStarted => owned,
            Self::Always => true,
            Self::Never => false,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfStarted => "if_started",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// An exit mode without `auto`: what is really done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Return,
    Halt,
    Stop,
}

impl Exit {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Return => ExitMode::None.as_str(),
            Self::Halt => ExitMode::Halt.as_str(),
            Self::Stop => ExitMode::Stop.as_str(),
        }
    }
}

impl ExitMode {
    /// The value of a variable: surrounding blanks and the case of letters do not matter.
    pub(super) fn from_variable(text: &str) -> Result<Self, ArgumentError> {
        text.trim().to_ascii_lowercase().parse()
    }
}

impl FromStr for ExitMode {
    type Err = ArgumentError;

    /// One of the four words, as they are written.
    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        match text {
            "none" => Ok(Self::None),
            "halt" => Ok(Self::Halt),
            "stop" => Ok(Self::Stop),
            "auto" => Ok(Self::Auto),
            _ => Err(ArgumentError {
                option: "exit_mode",
                value: text.to_owned(),
                allowed: "none, halt, stop and auto",
            }),
        }
    }
}

impl FromStr for StopMode {
    type Err = ArgumentError;

    /// One of the three words, as they are written.
    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        match text {
            "if_started" => Ok(Self::IfStarted),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(ArgumentError {
                option: "stop_mode",
                value: text.to_owned(),
                allowed: "if_started, always and never",
            }),
        }
    }
}

impl TryFrom<&str> for ExitMode {
    type Error = ArgumentError;

    fn try_from(text: &str) -> Result<Self, ArgumentError> {
        text.parse()
    }
}

impl TryFrom<&str> for StopMode {
    type Error = ArgumentError;

    fn try_from(text: &str) -> Result<Self, ArgumentError> {
        text.parse()
    }
}

impl fmt::Display for ExitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for StopMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
