//! Formats the logs of workers. The cost is limited, whatever the worker sends: only the first few KiB of a log are
//! shown anyway.

use std::fmt::{self, Write as _};

use crate::value::{Encoded, ValueError};

/// The maximum length of the text. It is cut into lines, which are cut again.
const TEXT: usize = 64 * 1024;
/// The maximum length of the fields. Longer fields are left out.
const FIELDS: usize = 64 * 1024;
/// The maximum length of the fields as shown.
const SHOWN_FIELDS: usize = 8 * 1024;
/// The maximum length of the level as shown.
const LEVEL: usize = 32;

/// Returns `level: text fields`.
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
    // Stops in the middle of a value that is too long, because a few integers can have a million digits.
    if write!(shown, "{value}").is_err() {
        shown.text.push('…');
    }
    Ok(shown.text)
}

/// Returns the longest beginning of a text that has at most this many bytes.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Keeps only the beginning of what is written to it.
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

    /// Formatting digits takes quadratic time. Only the digits of the first integers are formatted.
    #[test]
    fn integers_of_many_digits_are_not_all_shown() {
        let number = BigInt::from_twos_complement(&[0x5a; 4096]);
        let fields = Value::from(vec![Value::BigInt(number); 15]);
        let text = told("x", &fields);
        assert!(text.len() < SHOWN_FIELDS + 20 && text.ends_with('…'), "{}", text.len());
    }
}
