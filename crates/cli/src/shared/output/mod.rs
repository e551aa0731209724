//! Writes to stdout and stderr, as text or as JSON. It does not matter if their pipe is closed or their disk is full.
//!
//! Much of the output comes from workers and from other users. A terminal must show their control characters, not obey
//! them, so `snakepit::value::harmless` spells them out. A crate that strips escape sequences would hide them instead.

pub(crate) mod display;
pub(crate) mod table;

use std::fmt::Write as _;
use std::io::Write as _;

use snakepit::value::harmless;

/// Writes to stdout.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(harmless(text).as_bytes()).and_then(|()| stdout.flush());
}

/// Writes to stderr.
pub(crate) fn err(text: &str) {
    let _ = std::io::stderr().lock().write_all(harmless(text).as_bytes());
}

/// Defines reports, which are structs that become JSON. Each field is written once: its type, and its value, which is
/// taken from what the report is about.
macro_rules! report {
    ($(
        $(#[$attr:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? from $source:ident: $type:ty {
            $($(#[$field_attr:meta])* $field:ident: $field_type:ty = $value:expr,)*
        }
    )*) => {$(
        $(#[$attr])*
        #[derive(serde::Serialize)]
        $vis struct $name $(<$life>)? {
            $($(#[$field_attr])* $field: $field_type,)*
        }

        impl $(<$life>)? From<$type> for $name $(<$life>)? {
            fn from($source: $type) -> Self {
                Self { $($field: $value,)* }
            }
        }
    )*};
}
pub(crate) use report;

/// Returns one JSON value on one line.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    // Reports are structs with string keys, which always serialize.
    let mut line = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    line.push('\n');
    harmless_json(line)
}

/// Returns the same JSON without control characters. They occur only in strings, where JSON can spell them out.
pub(crate) fn harmless_json(json: String) -> String {
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

/// Returns a message that a file of the library was damaged, and what to do.
pub(crate) fn damaged_file(path: &dyn std::fmt::Display, why_kept: Option<&str>) -> String {
    match why_kept {
        None => format!("snakepit: {path} was damaged and has been replaced"),
        Some(why) => format!("snakepit: {path} is damaged and cannot be replaced ({why}): remove it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_json_escapes_control_characters_and_keeps_its_value() {
        let text = "a\u{9b}31m\u{202e}\u{7f}\n\"grüße\"";
        let line = json(&text);
        assert_eq!(line, "\"a\\u009b31m\\u202e\\u007f\\n\\\"grüße\\\"\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).expect("JSON"), text);
    }
}
