//! Makes foreign text safe to show on a terminal. Only this module knows which characters a terminal interprets.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes the characters that a terminal interprets: control characters (including C1, which some terminals treat as
/// escape sequences), and characters that are invisible or change the direction of the text. Keeps line feeds and tabs.
///
/// Pass every error, every log line and the name of another user's process through this function before you print it.
///
/// ```
/// assert_eq!(snakepit::value::harmless("\x1b[31mred\n"), "\\u{1b}[31mred\n");
/// ```
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // A line break as Windows writes it: only the line feed is kept.
            '\r' if rest.peek() == Some(&'\n') => {}
            c if is_obeyed(c) => {
                let _ = write!(clean, "{}", c.escape_unicode());
            }
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// Reports whether a terminal would interpret the character instead of showing it.
pub fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain text, grüße\n\tindented", "plain text, grüße\n\tindented"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("one\r\ntwo\rthree", "one\ntwo\\u{d}three"),
            ("\x7f\x08", "\\u{7f}\\u{8}"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        assert!(matches!(harmless("nothing to do"), Cow::Borrowed(_)));
    }
}
