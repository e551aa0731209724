//! Why a command gives up: what it could not do, why, and the way out.

use std::error::Error;
use std::fmt::Write as _;

use serde_json::{Value as Json, json};
use snakepit::custody::OpenError;

use crate::shared::exit_status::{INTERNAL, USAGE};
use crate::shared::output;

const OTHER_STATE_DIR: &str = "choose another state directory with --state-dir or SNAKEPIT_STATE_DIR";

/// How a failure is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureFormat {
    /// As text.
    Text,
    /// As text, and as a line of JSON for programs.
    TextAndJson,
}

impl FailureFormat {
    /// Returns the format that the option `--json` asks for.
    pub(crate) fn of_option(json: bool) -> Self {
        if json { Self::TextAndJson } else { Self::Text }
    }
}

#[derive(Debug)]
pub(crate) struct CliFailure {
    status: u8,
    text: String,
    hint: Option<String>,
    /// The JSON that a program reads instead of the text.
    json: Option<Json>,
}

impl CliFailure {
    /// Creates a failure of snakepit itself, without a cause.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self { status: INTERNAL, text: text.into(), hint: None, json: None }
    }

    /// Creates a failure from what could not be done and the chain of its causes.
    pub(crate) fn new(what: impl Into<String>, cause: &dyn Error) -> Self {
        Self::internal(format!("{}: {}", what.into(), chain(cause)))
    }

    /// Creates a failure from an error that already names what could not be done.
    pub(crate) fn of(cause: &dyn Error) -> Self {
        Self::internal(chain(cause))
    }

    /// Creates a failure for a command line, or a file that it names, that cannot be used.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::internal(text).status(USAGE)
    }

    pub(crate) fn usage_of(cause: &dyn Error) -> Self {
        Self::usage(chain(cause))
    }

    /// Creates a failure for a state directory that cannot be used. Custody's error names the directory.
    pub(crate) fn state(error: &OpenError) -> Self {
        Self::of(error).hint(OTHER_STATE_DIR)
    }

    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn json(mut self, json: Json) -> Self {
        self.json = Some(json);
        self
    }

    /// Returns what went wrong, without the way out.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns what went wrong and, on a second line, the way out.
    pub(crate) fn message(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\n  {hint}"));
        format!("{}{hint}", self.text)
    }

    /// Prints the failure on stderr, and returns the exit status.
    pub(crate) fn report(&self, format: FailureFormat) -> u8 {
        let mut text = format!("snakepit: {}\n", self.message());
        if format == FailureFormat::TextAndJson {
            let error = self.json.clone().unwrap_or_else(|| json!({ "message": self.text }));
            text.push_str(&output::json(&json!({ "status": self.status, "error": error })));
        }
        output::err(&text);
        self.status
    }
}

/// Formats an error with the chain of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        // Some errors print their cause themselves.
        if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
        next = error.source();
    }
    text
}
