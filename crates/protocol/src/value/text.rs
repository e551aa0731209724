//! The text form of a value for people: compact like JSON, with additions for kinds that JSON does not have.

use std::fmt::{self, Write};

use bytes::Bytes;

use super::{Map, Value};
use crate::terminal_text::is_obeyed;

/// Longer byte strings are shown only by their length.
const SHOWN_BYTES: usize = 64;

impl fmt::Display for Value {
    /// Writes compact text like JSON: `{"a":1,"b":[null,b"\x00"],"at":2024-02-29T12:00:00Z}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::BigInt(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Str(text) => write_text(f, text),
            Self::Bytes(bytes) => write_bytes(f, bytes),
            Self::List(list) => write_all(f, ['[', ']'], list, |f, value| write!(f, "{value}")),
            Self::Map(map) => write!(f, "{map}"),
            Self::DateTime(time) => write!(f, "{time}"),
            Self::NaiveDateTime(time) => write!(f, "{time}"),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_all(f, ['{', '}'], self.iter(), |f, (key, value)| write!(f, "{key}:{value}"))
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_all<T>(
    f: &mut fmt::Formatter<'_>,
    [open, close]: [char; 2],
    entries: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (index, entry) in entries.into_iter().enumerate() {
        if index > 0 {
            f.write_char(',')?;
        }
        write(f, entry)?;
    }
    f.write_char(close)
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if is_obeyed(c) => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &Bytes) -> fmt::Result {
    if bytes.len() > SHOWN_BYTES {
        return write!(f, "<{} bytes>", bytes.len());
    }
    write!(f, "b\"{}\"", bytes.escape_ascii())
}
