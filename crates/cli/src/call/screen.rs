//! Standard error while a call is under way: lines, and on a terminal one more that shows how far it is.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use snakepit::{Progress, harmless};

use crate::say;

const CLEAR: &str = "\r\x1b[K";

/// Unless the terminal tells its width.
const WIDTH: usize = 80;

#[derive(Clone)]
pub(crate) struct Screen {
    is_terminal: bool,
    /// Whether the last line is one that shows progress.
    dirty: Arc<Mutex<bool>>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        // One that cannot go back to the beginning of a line, as the shell of an editor, gets lines like a file.
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self { is_terminal: std::io::stderr().is_terminal() && !is_dumb, dirty: Arc::default() }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows how far the call is, where a person can see it.
    pub(crate) fn progress(&self, progress: &Progress) {
        if self.is_terminal {
            let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
            say::control(&format!("{CLEAR}{}", shown(progress, width())));
            *dirty = true;
        }
    }

    /// Writes a line; progress makes room for it.
    pub(crate) fn line(&self, line: &str) {
        self.clear();
        say::err(&format!("{line}\n"));
    }

    /// Makes room for something else.
    pub(crate) fn clear(&self) {
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *dirty) {
            say::control(CLEAR);
        }
    }
}

/// How many characters a line has.
pub(crate) fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH } else { columns }
}

fn shown(progress: &Progress, width: usize) -> String {
    let mut text = String::new();
    if let Some(fraction) = progress.fraction {
        let _ = write!(text, "{:3.0} %", fraction.clamp(0.0, 1.0) * 100.0);
    }
    if let Some(words) = &progress.text {
        let gap = if text.is_empty() { "" } else { "  " };
        let _ = write!(text, "{gap}{words}");
    }
    // A terminal must not obey what a worker says, and it is one line.
    harmless(&text.replace(['\n', '\r', '\t'], " ")).chars().take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_fits_one_line_and_commands_nothing() {
        let progress = |fraction, text: &str| Progress { fraction, text: Some(text.into()) };
        assert_eq!(shown(&progress(Some(0.5), "half"), 80), " 50 %  half");
        assert_eq!(shown(&progress(None, "a\nb\x1b[31m"), 80), "a b\\u{1b}[31m");
        assert_eq!(shown(&progress(Some(7.0), "much too long"), 12), "100 %  much");
        assert_eq!(shown(&progress(None, "a narrow one"), 4), "a n");
    }
}
