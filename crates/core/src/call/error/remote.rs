//! The error of a worker or of a tool, as spec/wire.md has it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::harmless;

/// An error as a worker (or a tool) tells it: an exception with its causes, or a call that did not fit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RemoteError {
    /// What kind of error it is.
    pub kind: RemoteErrorKind,
    /// The exception's type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Its message.
    pub message: String,
    /// Where it was raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// What caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<RemoteError>>,
    /// Notes that were added to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Commands with names like the unknown one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
    /// Which argument is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Where inside the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl RemoteError {
    /// An error with nothing but a kind and a message.
    ///
    /// ```
    /// use snakepit::call::RemoteErrorKind;
    /// use snakepit::RemoteError;
    ///
    /// let error = RemoteError::new(RemoteErrorKind::BadArgument, "a is missing");
    /// assert_eq!((error.kind.as_str(), error.to_string().as_str()), ("bad_argument", "a is missing"));
    /// ```
    pub fn new(kind: impl Into<RemoteErrorKind>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into(), ..Self::default() }
    }

    /// Sets the exception's type.
    pub fn type_name(mut self, name: impl Into<String>) -> Self {
        self.type_name = Some(name.into());
        self
    }

    /// Sets where it was raised.
    pub fn traceback(mut self, traceback: impl Into<String>) -> Self {
        self.traceback = Some(traceback.into());
        self
    }

    /// Sets what caused it.
    pub fn cause(mut self, cause: Self) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// Sets the commands with names like the unknown one.
    pub fn nearest(mut self, commands: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.nearest = commands.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the place inside the value.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The error of a call that was made without `stream`, of a command that streams.
    pub fn streaming(command: &str) -> Self {
        Self::new(RemoteErrorKind::Streaming, format!("{command} streams its answer; call it as a stream"))
    }

    /// Whether the command's code has run: with other errors, the call did not get so far.
    pub(crate) fn has_run(&self) -> bool {
        use RemoteErrorKind::{BadValue, Deadline, Exception};
        matches!(self.kind, Exception | BadValue | Deadline)
    }

    /// Whether the command's code may have run: only some kinds rule it out.
    pub(super) fn may_have_run(&self) -> bool {
        use RemoteErrorKind::{BadArgument, Refused, Start, UnknownCommand};
        !matches!(self.kind, BadArgument | Refused | Start | UnknownCommand)
    }

    /// The error and its causes, the outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |error| error.cause.as_deref())
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.type_name, self.message.is_empty()) {
            (Some(name), false) => write!(f, "{}: {}", harmless(name), harmless(&self.message)),
            (Some(name), true) => f.write_str(&harmless(name)),
            (None, _) => f.write_str(&harmless(&self.message)),
        }
    }
}

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref() as _)
    }
}

/// What kind of error a worker or a tool reports, as `spec/wire.md` lists them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// The command raised.
    #[default]
    Exception,
    /// There is no such command.
    UnknownCommand,
    /// The arguments do not fit the command.
    BadArgument,
    /// A value cannot be sent.
    BadValue,
    /// A message cannot be read.
    BadPayload,
    /// The command streams, and was not called as a stream.
    Streaming,
    /// The call was cancelled.
    Cancelled,
    /// The time of the call was over.
    Deadline,
    /// The worker, or the host, does not take the call.
    Refused,
    /// The worker cannot start.
    Start,
    /// A kind that this version does not know.
    Other(String),
}

impl RemoteErrorKind {
    const KNOWN: [Self; 10] = [
        Self::Exception,
        Self::UnknownCommand,
        Self::BadArgument,
        Self::BadValue,
        Self::BadPayload,
        Self::Streaming,
        Self::Cancelled,
        Self::Deadline,
        Self::Refused,
        Self::Start,
    ];

    /// The kind as it travels.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exception => "exception",
            Self::UnknownCommand => "unknown_command",
            Self::BadArgument => "bad_argument",
            Self::BadValue => "bad_value",
            Self::BadPayload => "bad_payload",
            Self::Streaming => "streaming",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Refused => "refused",
            Self::Start => "start",
            Self::Other(kind) => kind,
        }
    }
}

impl From<String> for RemoteErrorKind {
    /// An error without a kind is an exception.
    fn from(kind: String) -> Self {
        if kind.is_empty() {
            return Self::default();
        }
        Self::KNOWN.into_iter().find(|known| known.as_str() == kind).unwrap_or(Self::Other(kind))
    }
}

impl From<&str> for RemoteErrorKind {
    fn from(kind: &str) -> Self {
        kind.to_owned().into()
    }
}

impl From<RemoteErrorKind> for String {
    fn from(kind: RemoteErrorKind) -> Self {
        match kind {
            RemoteErrorKind::Other(kind) => kind,
            known => known.as_str().to_owned(),
        }
    }
}

impl fmt::Display for RemoteErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(self.as_str()))
    }
}
