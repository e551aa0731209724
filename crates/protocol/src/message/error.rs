//! ERROR, and the errors in `RESULTS` and `HOST_ERROR`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::harmless;

/// An error that a worker or a tool reports: an exception with its causes, or a call that does not fit the command.
///
/// ```no_run
/// use snakepit::{CallError, Snakepit, args};
///
/// # async fn example(pit: &Snakepit) -> Result<(), CallError> {
/// match pit.call::<f64>("divide", args! { a: 1, b: 0 }).await {
///     Ok(quotient) => println!("{quotient}"),
///     Err(CallError::Remote(error)) if error.type_name.as_deref() == Some("ZeroDivisionError") => println!("infinite"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RemoteError {
    /// The kind of the error.
    pub kind: RemoteErrorKind,
    /// The type of the exception.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The message of the error.
    pub message: String,
    /// The place where the exception was raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The error that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<RemoteError>>,
    /// The notes that were added to the exception.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The commands whose names resemble the unknown one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
    /// The argument that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// The place inside the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl RemoteError {
    /// Creates an error with only a kind and a message.
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

    /// Sets where the exception was raised.
    pub fn traceback(mut self, traceback: impl Into<String>) -> Self {
        self.traceback = Some(traceback.into());
        self
    }

    /// Sets the error that caused this one.
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

    /// Creates the error of a streaming command that was called without `stream`.
    pub fn streaming(command: &str) -> Self {
        Self::new(RemoteErrorKind::Streaming, format!("{command} streams its answer; call it as a stream"))
    }

    /// Iterates over the error and its causes, the outermost first.
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

/// The kind of an error that a worker or a tool reports, as listed in `spec/wire.md`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// The command raised an exception.
    #[default]
    Exception,
    /// The command does not exist.
    UnknownCommand,
    /// The arguments do not fit the command.
    BadArgument,
    /// A value cannot be sent.
    BadValue,
    /// A message cannot be read.
    BadPayload,
    /// The command streams, but was not called as a stream.
    Streaming,
    /// The call was cancelled.
    Cancelled,
    /// The call ran out of time.
    Deadline,
    /// The worker or the host does not accept the call.
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

    /// Returns the kind, as written on the wire.
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
    /// Reads a kind. An empty text means an exception.
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
