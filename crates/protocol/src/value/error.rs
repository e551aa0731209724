//! The error of this module: what is wrong with a value, and the path to that place inside the value.
//!
//! The path is collected while the error returns through the lists and maps, so it costs nothing if there is no error.

use std::fmt::{self, Display};

use serde::de::{self, Expected, Unexpected};
use serde::ser;

/// An error about a value that cannot be sent, cannot be read, or does not have the requested type.
///
/// ```
/// use snakepit::value::Encoded;
///
/// let sent = Encoded::encode(&(1, "two")).unwrap();
/// let error = sent.decode::<(i64, i64)>().unwrap_err().under("result");
/// assert_eq!(error.to_string(), "result[1]: expected an integer, found a string");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ValueError(Box<ErrorDetails>);

#[derive(Clone, PartialEq, Eq)]
struct ErrorDetails {
    kind: ValueErrorKind,
    message: String,
    /// Whether derived code found a key twice. `Encoded::decode` then decodes again.
    duplicate_field: bool,
    /// The steps of the path, innermost first.
    steps: Vec<String>,
}

/// The kind of a [`ValueError`], which shows which side is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueErrorKind {
    /// The bytes are not a value of this protocol. The sender is at fault.
    Malformed,
    /// The value is valid, but not of the requested type.
    Mismatch,
    /// The value cannot be represented in this protocol. Nothing was sent.
    Unsendable,
}

impl ValueError {
    #[cold]
    pub(super) fn new(kind: ValueErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            message: message.into(),
            duplicate_field: false,
            steps: Vec::new(),
        }))
    }

    /// Creates an error for bytes that are not a value of this protocol.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(ValueErrorKind::Malformed, message)
    }

    pub(super) fn mismatch(message: impl Into<String>) -> Self {
        Self::new(ValueErrorKind::Mismatch, message)
    }

    /// Creates an error for a value that cannot be represented in this protocol.
    pub fn unsendable(message: impl Into<String>) -> Self {
        Self::new(ValueErrorKind::Unsendable, message)
    }

    /// Turns an error about malformed bytes into one about a value that cannot be sent.
    pub(super) fn into_unsendable(mut self) -> Self {
        self.0.kind = ValueErrorKind::Unsendable;
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ValueErrorKind {
        self.0.kind
    }

    /// Returns the description of the error without the path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the path inside the value, such as `rows[3].price`. Empty for the value itself.
    pub fn path(&self) -> String {
        let steps: String = self.0.steps.iter().rev().map(String::as_str).collect();
        steps.strip_prefix('.').map(str::to_owned).unwrap_or(steps)
    }

    pub(super) fn is_duplicate_field(&self) -> bool {
        self.0.duplicate_field
    }

    /// Puts a name in front of the path. For example, `under("result")` is for an error inside a result.
    #[must_use]
    pub fn under(self, name: &str) -> Self {
        self.step(format!(".{name}"))
    }

    /// Adds a list index to the path.
    #[cold]
    #[must_use]
    pub fn at_index(self, index: usize) -> Self {
        self.step(format!("[{index}]"))
    }

    /// Adds a map key to the path: `.key` for a plain name, `["any text"]` or `[5]` for other keys.
    #[cold]
    #[must_use]
    pub fn at_key(self, key: &super::Value) -> Self {
        match key {
            super::Value::Str(name) if is_plain(name) => self.under(name),
            other => self.step(format!("[{other}]")),
        }
    }

    /// Adds a struct's field or an enum's variant to the path.
    #[cold]
    pub(super) fn at_field(self, name: &'static str) -> Self {
        if is_plain(name) { self.under(name) } else { self.step(format!("[{name:?}]")) }
    }

    fn step(mut self, step: String) -> Self {
        self.0.steps.push(step);
        self
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

impl Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        if path.is_empty() { f.write_str(self.message()) } else { write!(f, "{path}: {}", self.message()) }
    }
}

impl fmt::Debug for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueError")
            .field("kind", &self.kind())
            .field("path", &self.path())
            .field("message", &self.message())
            .finish()
    }
}

impl std::error::Error for ValueError {}

impl ser::Error for ValueError {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self::unsendable(message.to_string())
    }
}

impl de::Error for ValueError {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self::mismatch(message.to_string())
    }

    #[cold]
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::mismatch(format!("expected {}, found {}", wanted(expected), describe(found)))
    }

    #[cold]
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected_name = expected.to_string();
        let number = match found {
            Unexpected::Signed(number) => Some(number.to_string()),
            Unexpected::Unsigned(number) => Some(number.to_string()),
            _ => None,
        };
        match number {
            Some(number) if is_integer_type(&expected_name) => does_not_fit(&number, &expected_name),
            _ => Self::mismatch(format!("expected {}, found {}", wanted(expected), describe(found))),
        }
    }

    #[cold]
    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let entries = if length == 1 { "entry" } else { "entries" };
        Self::mismatch(format!("expected {expected}, found {length} {entries}"))
    }

    #[cold]
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::mismatch(format!("unknown variant {variant:?}, expected {}", one_of(expected)))
    }

    #[cold]
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::mismatch(format!("unknown key {field:?}, expected {}", one_of(expected)))
    }

    #[cold]
    fn missing_field(field: &'static str) -> Self {
        Self::mismatch(format!("the key {field:?} is missing"))
    }

    #[cold]
    fn duplicate_field(field: &'static str) -> Self {
        let mut error = Self::mismatch(format!("a second entry for the key {field:?}"));
        error.0.duplicate_field = true;
        error
    }
}

#[cold]
pub(super) fn does_not_fit(number: &str, integer_type: &str) -> ValueError {
    ValueError::mismatch(format!("{number} does not fit in {integer_type}"))
}

fn is_integer_type(name: &str) -> bool {
    let digits = name.strip_prefix(['i', 'u']).unwrap_or("");
    matches!(digits, "8" | "16" | "32" | "64" | "128" | "size")
}

/// Translates the expectations of serde's types into the terms of this protocol.
fn wanted(expected: &dyn Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "unit" => "nil".to_owned(),
        "byte array" | "bytes" => "a byte string".to_owned(),
        other if is_integer_type(other) => "an integer".to_owned(),
        _ => name,
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("the boolean {value}"),
        Unexpected::Unsigned(number) => format!("the integer {number}"),
        Unexpected::Signed(number) => format!("the integer {number}"),
        Unexpected::Float(number) => format!("the float {number:?}"),
        Unexpected::Char(c) => format!("the character {c:?}"),
        // The text itself is omitted: errors end up in logs, and the text may be a password.
        Unexpected::Str(_) => "a string".to_owned(),
        Unexpected::Bytes(_) => "a byte string".to_owned(),
        Unexpected::Unit | Unexpected::Option => "nil".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        Unexpected::Other(other) => other.to_owned(),
        other => other.to_string(),
    }
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [only] => format!("{only:?}"),
        many => format!("one of {}", many.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(", ")),
    }
}
