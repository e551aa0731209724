//! Why a handling failed, with the name that policies go by.

use std::any::Any;
use std::fmt;

use crate::CallError;
use crate::causes::with_causes;

/// Why a message could not be handled. Any error becomes one by `?`.
///
/// Its name is what [`DeadLetterPolicy`](crate::mailbox::DeadLetterPolicy) knows it by: the exception's type if a worker
/// raised one, the variant of a [`CallError`], else the name of the error's type. A panic is called `panic`, and a reply that
/// nobody can get `ReplyFailed`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// By which policies know it.
    pub name: String,
    /// What happened, for a person.
    pub message: String,
}

impl Failure {
    /// One of this name.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), message: message.into() }
    }

    /// What a panic said.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::new("panic", said.unwrap_or_else(|| "the handler panicked without a word".into()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { name: name_of(&error), message: with_causes(&error) }
    }
}

fn name_of<E: std::error::Error + 'static>(error: &E) -> String {
    if let Some(error) = (error as &dyn Any).downcast_ref::<CallError>() {
        return name_of_call_error(error);
    }
    let whole = std::any::type_name::<E>();
    let plain = whole.split('<').next().unwrap_or(whole);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

fn name_of_call_error(error: &CallError) -> String {
    let name = match error {
        CallError::Remote(error) => error.type_name.as_deref().unwrap_or(&error.kind),
        CallError::WorkerDied { .. } => "WorkerDied",
        CallError::Timeout { .. } => "Timeout",
        CallError::QueueTimeout { .. } => "QueueTimeout",
        CallError::Saturated { .. } => "Saturated",
        CallError::SessionBusy { .. } => "SessionBusy",
        CallError::SessionLost { .. } => "SessionLost",
        CallError::TooManySessions { .. } => "TooManySessions",
        CallError::Cycle { .. } => "Cycle",
        CallError::NoSuchPool { .. } => "NoSuchPool",
        CallError::NoWorkers { .. } => "NoWorkers",
        CallError::Quarantined { .. } => "Quarantined",
        CallError::CircuitOpen { .. } => "CircuitOpen",
        CallError::Arguments { .. } => "Arguments",
        CallError::Trace { .. } => "Trace",
        CallError::Result { .. } => "Result",
        CallError::Cancelled => "Cancelled",
        CallError::Stopped => "Stopped",
    };
    name.to_owned()
}
