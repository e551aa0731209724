//! The texts of all errors of a crate, for one snapshot.
//!
//! A unit test of each crate lists a realistic value of every variant with [`every_variant!`] and compares the texts with
//! a snapshot. A new variant that is not listed does not compile. This crate depends on nothing, so that custody, which
//! depends on none of the others, can use it as well.
//!
//! After a deliberate change, `INSTA_UPDATE=always cargo nextest run --lib -E 'test(/tests::/)'` rewrites the
//! snapshots. Read each new text aloud: it says what failed, where, and what to do about it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt::{self, Write as _};

/// The texts of errors, each after the name of its variant.
#[derive(Debug, Default)]
pub struct ErrorTexts(String);

impl ErrorTexts {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error with its causes. Further lines of the text are indented.
    pub fn add(&mut self, name: &str, error: &dyn Error) {
        self.add_text(name, &with_causes(error));
    }

    /// Adds a text that is part of an error, such as its reason. Further lines of the text are indented.
    pub fn add_text(&mut self, name: &str, text: &dyn fmt::Display) {
        let text = text.to_string().replace('\n', "\n    ");
        let _ = writeln!(self.0, "{name}: {text}");
    }
}

impl fmt::Display for ErrorTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text of an error and of its causes, as the program shows it: a cause that the text has already is not repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            let _ = write!(text, ": {reason}");
        }
        next = cause.source();
    }
    text
}

/// Adds the texts of all variants of an enum to [`ErrorTexts`]. The list names every variant, each with one value or
/// several; otherwise it does not compile.
///
/// ```
/// use snakepit_error_texts::{ErrorTexts, every_variant};
/// use std::num::ParseIntError;
///
/// #[derive(Debug)]
/// enum PortError {
///     Number(ParseIntError),
///     Taken { port: u16 },
/// }
/// # impl std::error::Error for PortError {}
/// # impl std::fmt::Display for PortError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         match self {
/// #             Self::Number(cause) => write!(f, "not a port: {cause}"),
/// #             Self::Taken { port } => write!(f, "port {port} is taken"),
/// #         }
/// #     }
/// # }
///
/// let mut texts = ErrorTexts::new();
/// every_variant!(texts, PortError {
///     Number => [PortError::Number("x".parse::<u16>().unwrap_err())],
///     Taken => [PortError::Taken { port: 80 }, PortError::Taken { port: 8080 }],
/// });
/// assert_eq!(
///     texts.to_string(),
///     "PortError::Number: not a port: invalid digit found in string\n\
///      PortError::Taken: port 80 is taken\n\
///      PortError::Taken: port 8080 is taken\n"
/// );
/// ```
#[macro_export]
macro_rules! every_variant {
    (@$add:ident $texts:expr, $errors:ident $(<$of:ty>)? {
        $($variant:ident => [$($error:expr),+ $(,)?]),+ $(,)?
    }) => {{
        // Without a `_` arm, so that no variant is forgotten.
        let name = |error: &$errors $(<$of>)?| match error {
            $($errors::$variant { .. } => stringify!($variant),)+
        };
        $($(
            let error = $error;
            assert_eq!(name(&error), stringify!($variant), "the value stands beside another variant");
            $texts.$add(concat!(stringify!($errors), "::", stringify!($variant)), &error);
        )+)+
    }};
    ($($list:tt)+) => { $crate::every_variant!(@add $($list)+) };
}

/// Like [`every_variant!`], for an enum that is part of an error and is no error itself.
#[macro_export]
macro_rules! every_text {
    ($($list:tt)+) => { $crate::every_variant!(@add_text $($list)+) };
}
