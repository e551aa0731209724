//! Formats tables and times for people.

use std::time::SystemTime;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use snakepit::value::harmless;

/// Aligns the columns of `rows` below `header`, two spaces apart, without trailing blanks.
pub(crate) fn aligned<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    // Control characters are spelled out before the columns are measured.
    table.add_rows(
        rows.iter().map(|row| row.each_ref().map(|cell| harmless(&cell.replace('\n', " ")).into_owned())),
    );
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.trim_fmt() + "\n"
}

/// Returns the placeholder for an absent value.
pub(crate) fn dash() -> String {
    "-".to_owned()
}

/// Formats a time in the local time zone.
pub(crate) fn local_time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(
        |_| dash(),
        |time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
    )
}

/// Formats a time as RFC 3339 in UTC.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| time.to_string())
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

    #[test]
    fn control_characters_in_table_cells_are_escaped_before_alignment() {
        let rows = [["\x1b[2Jx\ny".to_owned(), "漢字".to_owned(), "end".to_owned()]];
        let text = "ONE           TWO   THREE\n\\u{1b}[2Jx y  漢字  end\n";
        assert_eq!(aligned(["ONE", "TWO", "THREE"], &rows), text);
    }
}
