//! Why a handling failed, with the names that policies go by.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

use crate::CallError;
use crate::causes::with_causes;
use crate::mailbox::DeadLetterPolicy;

/// Why a message could not be handled. Any error becomes one by `?`, but for those in a box: [`Failure::of`] takes them, and
/// a handler may return them as they are.
///
/// Its name is what [`DeadLetterPolicy`] knows it by: the exception's type if a worker raised one, the variant of a
/// [`CallError`], else the name of the error's type. If that is only `Error`, it is `io::Error` or `serde_json::Error`. A
/// panic is called `panic`, and a reply that nobody can get `ReplyFailed`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// By which policies know it.
    pub name: String,
    /// What happened, for a person; without the name, and empty if the error says no more than that.
    pub message: String,
    /// By which policies know it, too: the variant of an enum, the [`io::ErrorKind`] of an [`io::Error`], and of a worker's error
    /// what it is about (`exception`, `bad_argument`, …).
    pub kinds: Vec<String>,
}

impl Failure {
    /// One of this name.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), message: message.into(), kinds: Vec::new() }
    }

    /// One that policies know by this, too.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kinds.push(kind.into());
        self
    }

    /// Of an error whose type is not known here, such as one in a box: its name is the first word of how it debugs, which for
    /// derived ones is the name of the type, or the variant of an enum.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let name = match (error.downcast_ref::<CallError>(), error.downcast_ref::<io::Error>()) {
            (Some(error), _) => name_of_call_error(error),
            (None, Some(_)) => "io::Error".to_owned(),
            (None, None) => first_word(error).unwrap_or_else(|| "Error".to_owned()),
        };
        Self::named(name, error)
    }

    fn named(name: String, error: &(dyn Error + 'static)) -> Self {
        let said = with_causes(error);
        let message = match said.strip_prefix(&name) {
            Some("") => String::new(),
            Some(rest) => rest.strip_prefix(": ").map(str::to_owned).unwrap_or(said),
            None => said,
        };
        let mut kinds = kinds_of(error);
        kinds.retain(|kind| *kind != name);
        Self { name, message, kinds }
    }

    /// The first of its name and its kinds that the policy names, else its name. What is excluded comes before what is included.
    pub(super) fn known_as<'a>(&'a self, policy: &DeadLetterPolicy) -> &'a str {
        let all = || std::iter::once(&self.name).chain(&self.kinds);
        let found = all()
            .find(|it| policy.exclude.contains(it))
            .or_else(|| all().find(|it| policy.include.contains(it)));
        found.unwrap_or(&self.name)
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
        if self.message.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let name = match (&error as &dyn Any).downcast_ref::<CallError>() {
            Some(error) => name_of_call_error(error),
            None => name_of_type(std::any::type_name::<E>()),
        };
        Self::named(name, &error)
    }
}

/// What a handler may fail with: a [`Failure`], any error, or one in a box (`Box<dyn Error + Send + Sync>`, and those of anyhow
/// and eyre). The compiler finds out which by `Way`.
pub trait IntoFailure<Way> {
    /// As a failure.
    fn into_failure(self) -> Failure;
}

/// A [`Failure`], or what can be converted into one.
#[derive(Debug)]
pub enum Converted {}

/// An error of a type that is not known.
#[derive(Debug)]
pub enum Boxed {}

impl<E: Into<Failure>> IntoFailure<Converted> for E {
    fn into_failure(self) -> Failure {
        self.into()
    }
}

impl<E: AsRef<dyn Error + Send + Sync + 'static>> IntoFailure<Boxed> for E {
    fn into_failure(self) -> Failure {
        Failure::of(self.as_ref())
    }
}

/// `a::b::Odd<T>` is `Odd`, and what is only called `Error` has the word before it.
fn name_of_type(whole: &str) -> String {
    let inner =
        ["alloc::boxed::Box<", "alloc::sync::Arc<"].iter().find_map(|prefix| whole.strip_prefix(prefix));
    let whole = inner.unwrap_or(whole);
    let plain = whole.split(['<', '>']).next().unwrap_or(whole);
    let mut words = plain.rsplit("::").filter(|word| *word != "error");
    let last = words.next().unwrap_or(plain);
    match words.next() {
        Some(before) if last == "Error" => format!("{before}::{last}"),
        _ => last.to_owned(),
    }
}

/// What an error says of itself besides its type.
fn kinds_of(error: &(dyn Error + 'static)) -> Vec<String> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return vec![format!("{:?}", error.kind())];
    }
    match error.downcast_ref::<CallError>() {
        Some(CallError::Remote(error)) => vec![error.kind.clone()],
        Some(_) => Vec::new(),
        None => first_word(error).into_iter().collect(),
    }
}

/// The name that an error debugs with. No more of it is formatted than that.
fn first_word(error: &dyn Error) -> Option<String> {
    struct FirstWord(String);
    impl fmt::Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            /// Longer than any name.
            const MOST: usize = 100;
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
            if end.is_some() || self.0.len() > MOST { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut word = FirstWord(String::new());
    // An error is how it stops.
    let _ = write!(word, "{error:?}");
    word.0.starts_with(|c: char| c.is_ascii_uppercase()).then_some(word.0)
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
