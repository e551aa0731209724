//! One line of `/proc/PID/stat`. Compiled into the library and the keepers, so the file uses only std.

/// The fields of `/proc/PID/stat` that custody needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcStat {
    /// The kernel's letter for the state. `D` is uninterruptible sleep; processes in `Z` and `X` have ended.
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The time from boot to the start of the process in clock ticks, as the reader's time namespace counts them.
    pub(crate) start: u64,
}

impl ProcStat {
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        // The name in field 2 may contain anything, even parentheses, so the fields are counted from its end.
        let after_name = line.iter().rposition(|byte| *byte == b')')? + 2;
        let rest = String::from_utf8_lossy(line.get(after_name..)?);
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start: fields.nth(15)?.parse().ok()?,
        })
    }

    /// Returns whether the process has ended, even if it is not reaped yet.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_in_a_process_name_hide_no_field() {
        let line = b"7 (a) b (c)) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99";
        let expected = ProcStat { state: 'S', parent: 1, group: 2, session: 3, start: 4242 };
        assert_eq!(ProcStat::parse(line), Some(expected));
    }
}
