//! How the program speaks: to stdout and stderr, without ever failing because nobody listens.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;

use snakepit::harmless;

/// The exit status for a failure that is ours and not the command's.
pub(crate) const OURS: u8 = 125;

/// The exit status for a command line that cannot be understood.
pub(crate) const USAGE: u8 = 2;

/// Writes to stdout. A closed pipe or a full disk behind it changes nothing. What a terminal would obey is spelled out: much of
/// what is said here are the words of workers, and of other users.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(harmless(text).as_bytes()).and_then(|()| stdout.flush());
}

/// Writes to stderr, in the same way.
pub(crate) fn err(text: &str) {
    control(&harmless(text));
}

/// Writes to stderr what a terminal is to obey.
pub(crate) fn control(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// One JSON object on one line.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    // Our reports are structs with string keys, which always serialize.
    let mut line = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    line.push('\n');
    plain_json(line)
}

/// The same JSON without characters that a terminal would obey. They stand in strings only, where they can be spelled out.
pub(crate) fn plain_json(json: String) -> String {
    if harmless(&json) == json {
        return json;
    }
    let mut plain = String::with_capacity(json.len() + 16);
    let mut bytes = [0; 4];
    for c in json.chars() {
        if harmless(c.encode_utf8(&mut bytes)).len() == c.len_utf8() {
            plain.push(c);
        } else {
            // All of them are below 0x10000.
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        }
    }
    plain
}

/// Why the program gives up: what it could not do, why, and the way out.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    text: String,
    hint: Option<String>,
}

impl Failure {
    /// What could not be done and the whole chain of its causes, with the status 125.
    pub(crate) fn new(what: impl Into<String>, cause: &dyn Error) -> Self {
        Self::plain(format!("{}: {}", what.into(), chain(cause)))
    }

    /// An error whose own words name the thing.
    pub(crate) fn of(cause: &dyn Error) -> Self {
        Self::plain(chain(cause))
    }

    /// A failure that has no cause but itself.
    pub(crate) fn plain(what: impl Into<String>) -> Self {
        Self { status: OURS, text: what.into(), hint: None }
    }

    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What went wrong, without the way out.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Prints itself on stderr and gives back the exit status.
    pub(crate) fn report(&self) -> u8 {
        let mut message = format!("snakepit: {}\n", self.text);
        if let Some(hint) = &self.hint {
            let _ = writeln!(message, "  {hint}");
        }
        err(&message);
        self.status
    }
}

/// A file of the library was damaged: what became of it, and what to do.
pub(crate) fn damage(path: &dyn std::fmt::Display, trouble: Option<&str>) -> String {
    match trouble {
        None => format!("snakepit: {path} was damaged and has been replaced\n"),
        Some(why) => format!("snakepit: {path} is damaged and cannot be replaced ({why}): remove it\n"),
    }
}

/// An error with the whole chain of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        // Some say their cause themselves.
        if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_same_json_without_what_a_terminal_obeys() {
        let text = "a\u{9b}31m\u{202e}\u{7f}\n\"grüße\"";
        let line = json(&text);
        assert_eq!(line, "\"a\\u009b31m\\u202e\\u007f\\n\\\"grüße\\\"\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).expect("JSON"), text);
    }
}
