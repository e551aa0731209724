//! Plain aligned tables for people.

use std::fmt::Write as _;

/// Aligns the columns of `rows` below `header`, two spaces apart; the last column is left ragged.
pub(crate) fn aligned<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let mut widths = [0; N];
    for row in std::iter::once(&header).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A time as a person in this place reads it.
pub(crate) fn local_time(time: std::time::SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => "-".to_owned(),
    }
}

/// A time as a program reads it: RFC 3339, UTC.
pub(crate) fn rfc3339(time: std::time::SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok().map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headers_without_trailing_blanks() {
        let rows = [
            ["a".to_owned(), "long cell".to_owned(), "x".to_owned()],
            ["bcd".to_owned(), "-".to_owned(), String::new()],
        ];
        assert_eq!(
            aligned(["ONE", "TWO", "THREE"], &rows),
            "ONE  TWO        THREE\na    long cell  x\nbcd  -\n"
        );
    }
}
