//! Cuts the output of a worker into lines, as a terminal would show them.
//!
//! A carriage return starts a line again, so only the last state of a progress bar is a line. The states before it are
//! reported as progress. Programs that draw several bars go up with `ESC [ A`, which is followed within a few rows.
//! Knows nothing of workers.

use crate::harmless;

/// The most bytes of one line that are kept.
pub(super) const LINE_LIMIT: usize = 8 * 1024;
/// How many rows above the last one the cursor can go up to.
const ROWS: usize = 8;
/// The longest escape sequence that is parsed.
const ESCAPE_LIMIT: usize = 8;
const ESCAPE: u8 = 0x1b;

/// One line of a stream, as far as it was read.
#[derive(Debug, Default)]
struct PartialLine {
    text: Vec<u8>,
    /// The number of bytes that were printed beyond the limit.
    cut: usize,
    /// Whether the next text replaces this one.
    returned: bool,
    /// Whether text was written over other text, as in a progress bar.
    overwritten: bool,
    /// Whether nothing was written since the line was emitted.
    emitted: bool,
    /// Whether nothing was written since the line was shown as progress.
    shown: bool,
}

impl PartialLine {
    fn append(&mut self, bytes: &[u8]) {
        if self.returned {
            self.text.clear();
            (self.cut, self.returned, self.overwritten) = (0, false, true);
        }
        let room = LINE_LIMIT - self.text.len();
        let (kept, cut) = bytes.split_at(bytes.len().min(room));
        self.text.extend_from_slice(kept);
        self.cut += cut.len();
        (self.emitted, self.shown) = (false, false);
    }

    fn clear(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self { text, ..Self::default() };
    }

    fn is_progress(&self) -> bool {
        self.overwritten || self.returned
    }

    /// Returns the text in a form that is harmless to a terminal, or `None` if there is no text.
    fn harmless(&self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.text);
        // Drops the spaces that were written over the end of a longer text.
        let line = if self.overwritten { line.trim_end() } else { &line };
        if line.is_empty() && self.cut == 0 {
            return None;
        }
        let text = harmless(line);
        Some(if self.cut > 0 { format!("{text}… ({} bytes more)", self.cut) } else { text.into_owned() })
    }

    fn emit(&mut self, emit: &mut impl FnMut(String)) {
        if !std::mem::replace(&mut self.emitted, true)
            && let Some(text) = self.harmless()
        {
            emit(text);
        }
    }

    /// Returns the text if the line is a progress bar that has changed.
    fn progress(&mut self) -> Option<String> {
        if !self.is_progress() || std::mem::replace(&mut self.shown, true) {
            return None;
        }
        let text = self.harmless()?;
        // Drops a character that was read in part.
        Some(text.trim_end_matches('\u{fffd}').to_owned()).filter(|text| !text.is_empty())
    }
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    row: PartialLine,
    /// Bars above the current row, the nearest one last. `below` has the bars below it, also with the nearest one last.
    above: Vec<PartialLine>,
    below: Vec<PartialLine>,
    /// The part of an escape sequence that was read so far.
    escape: Vec<u8>,
    /// The state of a bar that was left for a bar above it.
    left: Option<String>,
}

impl Lines {
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut emit: impl FnMut(String)) {
        while let Some((&first, rest)) = bytes.split_first() {
            if !self.escape.is_empty() {
                if self.continue_escape(first) {
                    bytes = rest;
                }
                continue;
            }
            match first {
                b'\n' => self.end_row(&mut emit),
                b'\r' => self.row.returned = true,
                ESCAPE => self.escape.push(ESCAPE),
                _ => {
                    let special = |byte: &u8| matches!(*byte, b'\n' | b'\r' | ESCAPE);
                    let length = bytes.iter().position(special).unwrap_or(bytes.len());
                    let (text, rest) = bytes.split_at(length);
                    self.row.append(text);
                    bytes = rest;
                    continue;
                }
            }
            bytes = rest;
        }
    }

    /// Ends the stream. Text without a line end is a line, too.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(String)) {
        self.keep_escape();
        self.row.emit(&mut emit);
        while let Some(mut row) = self.below.pop() {
            row.emit(&mut emit);
        }
        *self = Self::default();
    }

    /// Returns the state of a progress bar that has changed since the last call.
    pub(super) fn progress(&mut self) -> Option<String> {
        let left = self.left.take();
        self.row.progress().or(left)
    }

    /// Returns the line that has not ended yet.
    pub(super) fn unfinished(&self) -> Option<String> {
        if self.row.emitted { None } else { self.row.harmless() }
    }

    /// Takes one more byte of an escape sequence. Returns false if the sequence is not supported and the byte is not
    /// part of it.
    fn continue_escape(&mut self, byte: u8) -> bool {
        let is_begun = self.escape.len() > 1;
        match byte {
            b'[' if !is_begun => self.escape.push(byte),
            b'0'..=b'9' | b';' if is_begun && self.escape.len() < ESCAPE_LIMIT => self.escape.push(byte),
            b'A' if is_begun => {
                let rows = std::str::from_utf8(&self.escape[2..]).ok().and_then(|rows| rows.parse().ok());
                self.escape.clear();
                self.go_up(rows.unwrap_or(1));
            }
            // Deleting the rest of the line changes nothing: text written over a line replaces all of it anyway.
            b'K' if is_begun => self.escape.clear(),
            _ => {
                self.keep_escape();
                return false;
            }
        }
        true
    }

    /// Treats an unsupported escape sequence as text.
    fn keep_escape(&mut self) {
        if !self.escape.is_empty() {
            self.row.append(&std::mem::take(&mut self.escape));
        }
    }

    fn go_up(&mut self, rows: usize) {
        for _ in 0..rows.min(ROWS) {
            let Some(above) = self.above.pop() else { break };
            let mut row = std::mem::replace(&mut self.row, above);
            if !row.shown {
                self.left = row.progress();
                // The state of the bar above is older.
                self.row.shown = true;
            }
            self.below.push(row);
        }
    }

    fn end_row(&mut self, emit: &mut impl FnMut(String)) {
        self.row.emit(emit);
        self.left = None;
        if !self.row.overwritten && self.below.is_empty() {
            self.above.clear();
            self.row.clear();
            return;
        }
        let mut next = self.below.pop().unwrap_or_default();
        next.returned = !next.text.is_empty();
        if self.above.len() == ROWS {
            self.above.remove(0);
        }
        self.above.push(std::mem::replace(&mut self.row, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        watched(chunks).0
    }

    /// Returns the lines, and the progress after each chunk.
    fn watched(chunks: &[&[u8]]) -> (Vec<String>, Vec<String>) {
        let mut lines = Lines::default();
        let (mut seen, mut progress) = (Vec::new(), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |text| seen.push(text));
            progress.extend(lines.progress());
        }
        lines.finish(|text| seen.push(text));
        (seen, progress)
    }

    #[test]
    fn a_line_may_arrive_in_pieces() {
        assert_eq!(cut(&[b"one\ntw", b"o\n", b"three"]), ["one", "two", "three"]);
        assert_eq!(cut(&[b"one\r", b"\ntwo\r\n\r\n\nthree\r\n"]), ["one", "two", "three"]);
    }

    #[test]
    fn an_endless_line_is_cut_and_counted() {
        let long = vec![b'x'; LINE_LIMIT + 7];
        let seen = cut(&[&long, b"\nnext\n"]);
        assert_eq!(seen.len(), 2);
        assert!(seen[0].ends_with("x… (7 bytes more)"), "{}", &seen[0][LINE_LIMIT - 3..]);
        assert_eq!(seen[1], "next");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(cut(&[b"\x1b[31mred\x1b[0m\tok\r\n"]), ["\\u{1b}[31mred\\u{1b}[0m\tok"]);
        assert_eq!(cut(&["a\u{202e}b".as_bytes()]), ["a\\u{202e}b"]);
        assert_eq!(cut(&[b"\xff\xfe"]), ["\u{fffd}\u{fffd}"]);
        assert_eq!(cut(&[b"\x1b\n\x1b[1\nx\x1b[12345678A"]), ["\\u{1b}", "\\u{1b}[1", "x\\u{1b}[12345678A"]);
    }

    #[test]
    fn the_last_state_of_a_progress_bar_is_a_line_and_earlier_states_are_progress() {
        let (lines, progress) = watched(&[b"\r  0%", b"\r 50%", b"\r100%\n", b"after\n"]);
        assert_eq!(lines, ["100%", "after"]);
        assert_eq!(progress, ["  0%", " 50%"]);
        let (lines, progress) = watched(&[b"10%\r", b"", b"a longer one\r", b"99%         \r", b"done\n"]);
        assert_eq!(lines, ["done"]);
        assert_eq!(progress, ["10%", "a longer one", "99%"]);
        assert_eq!(cut(&[b"\r 50%", b"\r     ", b"\r", b"next\n"]), ["next"], "it took itself away");
        assert_eq!(cut(&[b"\r\x1b[K 50%\r\x1b", b"[K 60%"]), [" 60%"]);
    }

    #[test]
    fn a_partly_read_character_is_not_shown() {
        let (_, progress) = watched(&[b"\r50% \xe2\x96", b"\x88"]);
        assert_eq!(progress, ["50% ", "50% \u{2588}"]);
    }

    /// Two bars, as tqdm draws them: down to the second bar, back up to the first.
    #[test]
    fn progress_bars_below_one_another_are_separate_lines() {
        let inner = |text: &'static [u8]| [b"\n".as_slice(), text, b"\x1b[A"].concat();
        let (lines, progress) = watched(&[
            b"\router 0/2",
            &inner(b"\rinner 0/3"),
            &inner(b"\rinner 1/3"),
            &inner(b"\rinner 3/3"),
            b"\router 1/2",
            &inner(b"\rinner 2/3"),
            b"\router 2/2\n",
            b"after\n",
        ]);
        assert_eq!(lines, ["outer 0/2", "outer 1/2", "outer 2/2", "after"]);
        let all = ["outer 0/2", "inner 0/3", "inner 1/3", "inner 3/3", "outer 1/2", "inner 2/3"];
        assert_eq!(progress, all);
        let together = [b"\router 0/2".to_vec(), inner(b"\rinner 0/3")].concat();
        assert_eq!(
            watched(&[&together]),
            (vec!["outer 0/2".into(), "inner 0/3".into()], vec!["inner 0/3".into()])
        );
        let (lines, progress) = watched(&[
            b"\router 1/1",
            &[inner(b"\rinner 3/3"), inner(b"\r         "), b"\router 1/1\n".to_vec()].concat(),
        ]);
        assert_eq!(
            (lines.len(), progress.len()),
            (2, 1),
            "{lines:?}, {progress:?}: the inner one took itself away"
        );
    }
}
