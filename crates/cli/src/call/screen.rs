//! Standard error while a call is under way: lines, and on a terminal a few more below them that show how far it is.
//!
//! Elsewhere lines stay where they are: of a progress bar that a worker draws, one is written every now and then.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snakepit::{Progress, harmless};

use crate::say;

/// Unless the terminal tells its width.
const WIDTH: usize = 80;
/// The most workers whose progress bars are shown at a time.
const MOST_BARS: usize = 8;
/// How often a progress bar becomes a line, where it cannot be drawn anew.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Screen {
    is_terminal: bool,
    state: Arc<Mutex<State>>,
}

/// What is below the last line.
#[derive(Default)]
struct State {
    /// How far the call is.
    progress: Option<String>,
    /// A table that stands below all the rest.
    table: Vec<String>,
    /// What each worker draws.
    bars: Vec<Bar>,
    /// How many lines of these are on the terminal.
    drawn: usize,
    /// The answer is there: what shows progress is drawn no more.
    is_over: bool,
}

struct Bar {
    worker: String,
    text: String,
    /// When it was written as a line.
    written_at: Option<Instant>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        // One that cannot go back to the beginning of a line, as the shell of an editor, gets lines like a file.
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self { is_terminal: std::io::stderr().is_terminal() && !is_dumb, state: Arc::default() }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows how far the call is, where a person can see it.
    pub(crate) fn progress(&self, progress: &Progress) {
        let mut state = self.state();
        if self.is_terminal && !state.is_over {
            state.progress = Some(shown(progress, width()));
            say::control(&state.redraw(""));
        }
    }

    /// Shows a table, in the place of the one before.
    pub(crate) fn table(&self, lines: &[String]) {
        let mut state = self.state();
        if self.is_terminal && !state.is_over {
            state.table = lines.iter().map(|line| one_line(line, width())).collect();
            say::control(&state.redraw(""));
        }
    }

    /// Leaves the table where it is, above what is written next.
    pub(crate) fn keep_table(&self) {
        let mut state = self.state();
        if self.is_terminal && !state.table.is_empty() {
            let table = std::mem::take(&mut state.table).join("\n");
            say::control(&state.redraw(&format!("{table}\n")));
        }
    }

    /// Shows what a worker draws in one line, again and again.
    pub(crate) fn bar(&self, worker: &str, text: &str) {
        let mut state = self.state();
        if self.is_terminal && state.is_over {
            return;
        }
        if self.is_terminal {
            state.bar(worker).text = one_line(&format!("[{worker}] {text}"), width());
            say::control(&state.redraw(""));
        } else if let Some(line) = state.bar(worker).due(text, Instant::now()) {
            say::err(&line);
        }
    }

    /// Writes a line; what shows progress makes room for it.
    pub(crate) fn line(&self, line: &str) {
        let mut state = self.state();
        say::control(&state.redraw(&format!("{}\n", harmless(line))));
    }

    /// Writes a line that a worker has printed. It may be the last state of what it drew.
    pub(crate) fn line_of(&self, worker: &str, text: &str) {
        let mut state = self.state();
        if self.is_terminal {
            state.bars.retain(|bar| bar.worker != worker);
        } else if state.bars.iter_mut().any(|bar| bar.worker == worker && bar.ends_with(text)) {
            return;
        }
        say::control(&state.redraw(&format!("{}\n", harmless(&format!("[{worker}] {text}")))));
    }

    /// Makes room for the end, for good.
    pub(crate) fn finish(&self) {
        self.state().is_over = true;
        self.clear();
    }

    /// Makes room for something else.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        if self.is_terminal {
            state.progress = None;
            state.bars.clear();
            say::control(&state.redraw(""));
        }
    }
}

impl State {
    /// The bar of a worker, perhaps in the place of the oldest one.
    fn bar(&mut self, worker: &str) -> &mut Bar {
        let at = self.bars.iter().position(|bar| bar.worker == worker).unwrap_or_else(|| {
            if self.bars.len() == MOST_BARS {
                self.bars.remove(0);
            }
            self.bars.push(Bar { worker: worker.to_owned(), text: String::new(), written_at: None });
            self.bars.len() - 1
        });
        &mut self.bars[at]
    }

    /// What makes a terminal show some text and, below it, what there is now.
    fn redraw(&mut self, text: &str) -> String {
        let mut control = match self.drawn {
            0 => String::new(),
            1 => "\r\x1b[K".to_owned(),
            lines => format!("\r\x1b[{}A\x1b[J", lines - 1),
        };
        control.push_str(text);
        let bars = self.bars.iter().filter(|bar| bar.written_at.is_none()).map(|bar| bar.text.as_str());
        let lines: Vec<&str> =
            bars.chain(self.progress.as_deref()).chain(self.table.iter().map(String::as_str)).collect();
        self.drawn = lines.len();
        control.push_str(&lines.join("\n"));
        control
    }
}

impl Bar {
    /// The line to write, unless one was written just before.
    fn due(&mut self, text: &str, now: Instant) -> Option<String> {
        if self.written_at.is_some_and(|at| now.duration_since(at) < BETWEEN_LINES) {
            return None;
        }
        self.written_at = Some(now);
        text.clone_into(&mut self.text);
        Some(format!("[{}] {text}\n", self.worker))
    }

    /// Whether this state was written already, and is the last one.
    fn ends_with(&mut self, text: &str) -> bool {
        self.written_at.is_some() && std::mem::take(&mut self.text) == text
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
    one_line(&text, width)
}

/// A terminal must not obey what a worker says, and it is one line.
fn one_line(text: &str, width: usize) -> String {
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

    #[test]
    fn a_terminal_shows_one_line_for_each_worker_below_what_was_printed() {
        let mut state = State::default();
        state.bar("w-1").text = "first".into();
        assert_eq!(state.redraw(""), "first");
        state.bar("w-2").text = "second".into();
        assert_eq!(state.redraw(""), "\r\x1b[Kfirst\nsecond");
        assert_eq!(state.redraw("a line\n"), "\r\x1b[1A\x1b[Ja line\nfirst\nsecond");
        state.bars.clear();
        assert_eq!(state.redraw("end\n"), "\r\x1b[1A\x1b[Jend\n");
        assert_eq!(state.redraw("more\n"), "more\n");
        (0..100).for_each(|n| state.bar(&n.to_string()).text = n.to_string());
        assert_eq!(state.bars.len(), MOST_BARS);
    }

    #[test]
    fn elsewhere_a_bar_is_a_line_every_now_and_then() {
        let mut state = State::default();
        let (bar, now) = (state.bar("w-1"), Instant::now());
        assert_eq!(bar.due("0 %", now).as_deref(), Some("[w-1] 0 %\n"));
        assert_eq!(bar.due("1 %", now + BETWEEN_LINES / 2), None);
        assert_eq!(bar.due("2 %", now + BETWEEN_LINES).as_deref(), Some("[w-1] 2 %\n"));
        assert!(bar.ends_with("2 %") && !bar.ends_with("2 %"), "once");
    }
}
