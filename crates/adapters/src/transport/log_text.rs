//! The text of a log that a worker sends. What it costs is bounded, whatever the worker sends: a log is shown by its first
//! few KiB anyway.

use std::fmt::{self, Write as _};

use crate::value::{Encoded, ValueError};

/// So much of a text is kept; it is cut into lines, which are cut again.
const TEXT: usize = 64 * 1024;
/// Fields that are longer are left out.
const FIELDS: usize = 64 * 1024;
/// So much of the fields is shown.
const SHOWN_FIELDS: usize = 8 * 1024;
/// So much of the level is shown.
const LEVEL: usize = 32;

/// `level: text fields`.
pub(crate) fn log_text(level: &str, text: &str, fields: Option<&Encoded>) -> Result<String, ValueError> {
    let mut line = format!("{}: {}", beginning(level, LEVEL), beginning(text, TEXT));
    if text.len() > TEXT {
        let _ = write!(line, "… ({} bytes more)", text.len() - beginning(text, TEXT).len());
    }
    let Some(fields) = fields.filter(|fields| !fields.is_empty_map()) else { return Ok(line) };
    let length = fields.head().len();
    if length > FIELDS {
        let _ = write!(line, " (fields of {length} bytes are left out; {FIELDS} is the limit)");
        return Ok(line);
    }
    let value = fields.to_value()?;
    line.push(' ');
    let mut shown = Shown { text: line, left: SHOWN_FIELDS };
    // Stops in the middle of a value that is too long: a few integers can have a million digits.
    if write!(shown, "{value}").is_err() {
        shown.text.push('…');
    }
    Ok(shown.text)
}

/// The longest beginning of a text that has at most so many bytes.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Takes only so much.
struct Shown {
    text: String,
    left: usize,
}

impl fmt::Write for Shown {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let kept = beginning(more, self.left);
        self.text.push_str(kept);
        self.left -= kept.len();
        if kept.len() == more.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{BigInt, Value};

    fn told(text: &str, fields: &Value) -> String {
        let fields = Encoded::encode(fields).expect("fields");
        log_text("info", text, Some(&fields)).expect("a text")
    }

    #[test]
    fn a_log_is_its_level_its_text_and_its_fields() {
        let fields = Value::from(crate::value::Map::from([("a", 1)]));
        assert_eq!(told("hello", &fields), "info: hello {\"a\":1}");
        assert_eq!(told("hello", &Value::from(crate::value::Map::new())), "info: hello");
    }

    #[test]
    fn what_is_too_long_is_cut_and_counted() {
        let text = told(&"ä".repeat(TEXT), &Value::from(crate::value::Map::new()));
        assert!(text.ends_with(&format!("ä… ({TEXT} bytes more)")), "{}", &text[text.len() - 40..]);
        let text = told("x", &Value::from("y".repeat(FIELDS)));
        assert!(text.ends_with("(fields of 65541 bytes are left out; 65536 is the limit)"), "{text}");
    }

    /// Digits take quadratic time. Only those of the first integers are made.
    #[test]
    fn integers_of_many_digits_are_not_all_shown() {
        let number = BigInt::from_twos_complement(&[0x5a; 4096]);
        let fields = Value::from(vec![Value::BigInt(number); 15]);
        let text = told("x", &fields);
        assert!(text.len() < SHOWN_FIELDS + 20 && text.ends_with('…'), "{}", text.len());
    }
}
