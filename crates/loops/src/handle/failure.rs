//! The failure of a handler, with the names that policies match.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

use crate::CallError;
use crate::error_text::with_causes;
use crate::mailbox::DeadLetterPolicy;

/// The reason why a message could not be handled. `?` converts any error except a boxed one, which
/// [`HandlerFailure::of`] takes. A handler may also return boxed errors directly.
///
/// A [`DeadLetterPolicy`] matches a failure by its name: the type of the worker's exception, the variant of a
/// [`CallError`], or else the name of the error's type. A type that is just called `Error` is prefixed by its module:
/// `io::Error`, `serde_json::Error`. A panic is called `panic`, and a reply that cannot be delivered `ReplyFailed`.
///
/// ```
/// use snakepit::loops::HandlerFailure;
/// use snakepit::mailbox::TypedMessage;
///
/// async fn print(order: TypedMessage<String>) -> Result<(), HandlerFailure> {
///     if order.value.is_empty() {
///         return Err(HandlerFailure::new("Empty", "the order has no items"));
///     }
///     // The name of this failure is `io::Error`.
///     std::fs::write("order.txt", &order.value)?;
///     Ok(())
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HandlerFailure {
    /// The name that policies match.
    pub name: String,
    /// The description of the error, without the name. Empty if the error has nothing to add to its name.
    pub message: String,
    /// Further names that policies match: the variant of an enum, the [`io::ErrorKind`] of an [`io::Error`], the kind
    /// of a worker's error (`exception`, `bad_argument`, …).
    pub kinds: Vec<String>,
}

impl HandlerFailure {
    /// Returns a failure with this name.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), message: message.into(), kinds: Vec::new() }
    }

    /// Adds another name that policies match.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kinds.push(kind.into());
        self
    }

    /// Returns the failure of an error whose type is not known here, such as a boxed one. Its name is the first word of
    /// its `Debug` text. For a derived `Debug` that is the name of the type or the variant of an enum.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let name = match (error.downcast_ref::<CallError>(), error.downcast_ref::<io::Error>()) {
            (Some(error), _) => error.name().to_owned(),
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

    /// Returns the first name of the failure that the policy excludes, else the first that it includes, else the main
    /// name.
    pub(crate) fn known_as<'a>(&'a self, policy: &DeadLetterPolicy) -> &'a str {
        let all = || std::iter::once(&self.name).chain(&self.kinds);
        let found = all()
            .find(|it| policy.exclude.contains(it))
            .or_else(|| all().find(|it| policy.include.contains(it)));
        found.unwrap_or(&self.name)
    }

    /// Returns the failure of a panic, with the panic's message.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::new("panic", said.unwrap_or_else(|| "the handler panicked without a message".into()))
    }
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl<E: Error + 'static> From<E> for HandlerFailure {
    fn from(error: E) -> Self {
        let name = match (&error as &dyn Any).downcast_ref::<CallError>() {
            Some(error) => error.name().to_owned(),
            None => name_of_type(std::any::type_name::<E>()),
        };
        Self::named(name, &error)
    }
}

/// An error that a handler may return: a [`HandlerFailure`], any error, or a boxed one (`Box<dyn Error + Send + Sync>`,
/// and the errors of anyhow and eyre). The compiler infers `Way`.
pub trait IntoFailure<Way> {
    /// Converts the error to a failure.
    fn into_failure(self) -> HandlerFailure;
}

/// The marker for a [`HandlerFailure`] and for errors that convert into one.
#[derive(Debug)]
pub enum Converted {}

/// The marker for boxed errors.
#[derive(Debug)]
pub enum Boxed {}

impl<E: Into<HandlerFailure>> IntoFailure<Converted> for E {
    fn into_failure(self) -> HandlerFailure {
        self.into()
    }
}

impl<E: AsRef<dyn Error + Send + Sync + 'static>> IntoFailure<Boxed> for E {
    fn into_failure(self) -> HandlerFailure {
        HandlerFailure::of(self.as_ref())
    }
}

/// Returns the short name of a type: `a::b::Odd<T>` becomes `Odd`. A type that is just called `Error` keeps the word
/// before it.
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

/// Returns the names of an error besides that of its type.
fn kinds_of(error: &(dyn Error + 'static)) -> Vec<String> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return vec![format!("{:?}", error.kind())];
    }
    match error.downcast_ref::<CallError>() {
        Some(CallError::Remote(error)) => vec![error.kind.as_str().to_owned()],
        Some(_) => Vec::new(),
        None => first_word(error).into_iter().collect(),
    }
}

/// Returns the first word of an error's `Debug` text. Formats no more than that word.
fn first_word(error: &dyn Error) -> Option<String> {
    struct FirstWord(String);
    impl fmt::Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            /// A length that no name exceeds.
            const MOST: usize = 100;
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
            if end.is_some() || self.0.len() > MOST { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut word = FirstWord(String::new());
    // The error of the writer ends the formatting.
    let _ = write!(word, "{error:?}");
    word.0.starts_with(|c: char| c.is_ascii_uppercase()).then_some(word.0)
}
