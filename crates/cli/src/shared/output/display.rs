//! Standard error while workers are busy: lines and, on a terminal, bars below them that show the progress of the work.
//!
//! `indicatif` draws the bars. This file adds two things: lines go through `snakepit::value::harmless`, and without a
//! terminal, a bar that a worker draws becomes one line per second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use snakepit::call::Progress;
use snakepit::value::harmless;

use crate::shared::output;

/// The maximum number of workers whose bars are shown at a time.
const MOST_WORKER_BARS: usize = 8;
/// How often a worker's bar becomes a line where it cannot be redrawn.
const BETWEEN_LINES: Duration = Duration::from_secs(1);
const PLAIN: &str = "{wide_msg}";

#[derive(Clone)]
pub(crate) struct ProgressDisplay {
    bars: MultiProgress,
    shown: Arc<Mutex<ShownLines>>,
}

/// The bars below the last line, from top to bottom.
#[derive(Default)]
struct ShownLines {
    worker_bars: Vec<WorkerBar>,
    progress: Option<ProgressBar>,
    table: Option<ProgressBar>,
    /// Whether the result is there. Then nothing more is drawn.
    is_over: bool,
}

/// The bar of a worker.
struct WorkerBar {
    worker: String,
    bar: ProgressBar,
    /// The last line that was written instead of a bar, and when.
    written: Option<(Instant, String)>,
}

/// A line with a bar, in the syntax of indicatif's templates.
pub(crate) struct BarLine<'a> {
    pub(crate) template: &'static str,
    pub(crate) done: u64,
    pub(crate) of: u64,
    pub(crate) text: &'a str,
}

impl BarLine<'_> {
    fn bar(&self) -> ProgressBar {
        let style =
            ProgressStyle::with_template(self.template).unwrap_or_else(|_| ProgressStyle::default_bar());
        // The terminal must not obey control characters from a worker, and a bar is one line.
        let text = harmless(&self.text.replace(['\n', '\r', '\t'], " ")).into_owned();
        ProgressBar::with_draw_target(Some(self.of), ProgressDrawTarget::hidden())
            .with_style(style.progress_chars("█░"))
            .with_position(self.done)
            .with_message(text)
    }
}

fn plain(text: &str) -> ProgressBar {
    BarLine { template: PLAIN, done: 0, of: 0, text }.bar()
}

impl ProgressDisplay {
    /// Draws on standard error if it is a terminal that can redraw a line.
    pub(crate) fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        Self { bars: MultiProgress::with_draw_target(target), shown: Arc::default() }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        !self.bars.is_hidden()
    }

    fn shown(&self) -> MutexGuard<'_, ShownLines> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the progress of a call on a terminal.
    pub(crate) fn progress(&self, progress: &Progress) {
        let text = progress.text.as_deref().unwrap_or_default();
        let fraction = progress.fraction.unwrap_or_default().clamp(0.0, 1.0);
        let template = if progress.fraction.is_some() { "{percent:>3} %  {wide_msg}" } else { PLAIN };
        self.bar(&BarLine { template, done: (fraction * 1000.0) as u64, of: 1000, text });
    }

    /// Shows the progress of the work and replaces the previous bar.
    pub(crate) fn bar(&self, line: &BarLine<'_>) {
        let mut shown = self.shown();
        if self.is_terminal() && !shown.is_over {
            self.remove(shown.progress.take());
            let bar = self.bars.insert(shown.worker_bars.len(), line.bar());
            bar.force_draw();
            shown.progress = Some(bar);
        }
    }

    /// Shows a table at the bottom and replaces the previous one.
    pub(crate) fn table(&self, lines: &[String]) {
        let mut shown = self.shown();
        if self.is_terminal() && !shown.is_over {
            self.remove(shown.table.take());
            let width = width();
            let cut = |line: &String| line.chars().take(width).collect::<String>();
            let text = lines.iter().map(cut).collect::<Vec<_>>().join("\n");
            let style =
                ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            let table = self.bars.add(plain("").with_style(style).with_message(harmless(&text).into_owned()));
            table.force_draw();
            shown.table = Some(table);
        }
    }

    /// Leaves the table where it is, above what is written next.
    pub(crate) fn keep_table(&self) {
        let mut shown = self.shown();
        if let Some(table) = shown.table.take() {
            let text = table.message() + "\n";
            self.remove([table]);
            self.write(&shown, &text);
        }
    }

    /// Shows a line that a worker redraws.
    pub(crate) fn worker_bar(&self, worker: &str, text: &str) {
        let mut shown = self.shown();
        if self.is_terminal() && shown.is_over {
            return;
        }
        let line = format!("[{worker}] {text}");
        let at = shown.worker_bars.iter().position(|bar| bar.worker == worker).unwrap_or_else(|| {
            if shown.worker_bars.len() == MOST_WORKER_BARS {
                self.remove([shown.worker_bars.remove(0).bar]);
            }
            let at = shown.worker_bars.len();
            let bar = self.bars.insert(at, plain(""));
            shown.worker_bars.push(WorkerBar { worker: worker.to_owned(), bar, written: None });
            at
        });
        let bar = &mut shown.worker_bars[at];
        if self.is_terminal() {
            bar.bar.clone().with_message(plain(&line).message()).force_draw();
        } else if bar.is_due(text, Instant::now()) {
            output::err(&format!("{line}\n"));
        }
    }

    /// Writes a line above the bars.
    pub(crate) fn line(&self, line: &str) {
        self.write(&self.shown(), &format!("{line}\n"));
    }

    /// Writes a line that a worker printed. The line may be the last state of the worker's bar.
    pub(crate) fn worker_line(&self, worker: &str, text: &str) {
        let mut shown = self.shown();
        if self.is_terminal() {
            self.remove(shown.worker_bars.extract_if(.., |bar| bar.worker == worker).map(|bar| bar.bar));
        } else if shown.worker_bars.iter_mut().any(|bar| bar.worker == worker && bar.was_last(text)) {
            return;
        }
        self.write(&shown, &format!("[{worker}] {text}\n"));
    }

    /// Removes the bars for good, because the result follows.
    pub(crate) fn finish(&self) {
        self.shown().is_over = true;
        self.clear();
    }

    /// Removes the bars.
    pub(crate) fn clear(&self) {
        let mut shown = self.shown();
        if self.is_terminal() {
            self.remove(shown.progress.take());
            self.remove(shown.worker_bars.drain(..).map(|bar| bar.bar));
            self.write(&shown, "");
        }
    }

    fn remove(&self, bars: impl IntoIterator<Item = ProgressBar>) {
        bars.into_iter().for_each(|bar| self.bars.remove(&bar));
    }

    /// Clears the bars, writes, and draws the bars again. `MultiProgress::suspend` would panic if the terminal has
    /// gone.
    fn write(&self, shown: &ShownLines, text: &str) {
        let _ = self.bars.clear();
        output::err(text);
        let bars = shown.worker_bars.iter().map(|bar| &bar.bar).chain(&shown.progress).chain(&shown.table);
        // Drawing one bar draws all of them.
        bars.last().inspect(|bar| bar.force_draw());
    }
}

/// Returns the number of characters of a table that fit in a line.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

impl WorkerBar {
    /// Reports whether to write this state as a line now.
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let is_due = self.written.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= BETWEEN_LINES);
        if is_due {
            self.written = Some((now, text.to_owned()));
        }
        is_due
    }

    /// Reports whether this last state was just written as a line.
    fn was_last(&mut self, text: &str) -> bool {
        self.written.as_mut().is_some_and(|(_, last)| std::mem::take(last) == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;

    fn display(width: u16) -> (ProgressDisplay, InMemoryTerm) {
        let terminal = InMemoryTerm::new(12, width);
        (ProgressDisplay::on(ProgressDrawTarget::term_like(Box::new(terminal.clone()))), terminal)
    }

    #[test]
    fn progress_fits_one_line_and_contains_no_control_sequences() {
        for (width, fraction, text, shown) in [
            (80, Some(0.5), "half", " 50 %  half"),
            (80, None, "a\nb\x1b[31m", "a b\\u{1b}[31m"),
            (12, Some(7.0), "much too long", "100 %  much"),
            (4, None, "a narrow one", "a na"),
        ] {
            let (display, terminal) = display(width);
            let mut progress = Progress::default();
            (progress.fraction, progress.text) = (fraction, Some(text.into()));
            display.progress(&progress);
            assert_eq!(terminal.contents().trim_end_matches("too").trim_end(), shown);
        }
    }

    #[test]
    fn a_terminal_shows_one_line_for_each_worker_and_the_table_at_the_bottom() {
        let (display, terminal) = display(80);
        display.table(&["table".to_owned(), "row".to_owned()]);
        display.worker_bar("w-1", "first");
        let mut progress = Progress::default();
        progress.text = Some("progress".into());
        display.progress(&progress);
        display.worker_bar("w-2", "second");
        assert_eq!(terminal.contents(), "[w-1] first\n[w-2] second\nprogress\ntable\nrow");
        display.worker_bar("w-1", "again");
        display.worker_line("w-2", "printed");
        assert_eq!(terminal.contents(), "[w-1] again\nprogress\ntable\nrow");
        display.clear();
        assert_eq!(terminal.contents(), "table\nrow");
        display.finish();
        display.worker_bar("w-1", "late");
        assert_eq!(terminal.contents(), "table\nrow");
        let (display, terminal) = self::display(80);
        (0..100).for_each(|n| display.worker_bar(&n.to_string(), "x"));
        assert_eq!(terminal.contents().lines().count(), MOST_WORKER_BARS);
    }

    #[test]
    fn outside_a_terminal_a_progress_bar_prints_at_most_one_line_per_second() {
        let mut bar = WorkerBar { worker: "w-1".into(), bar: plain(""), written: None };
        let now = Instant::now();
        assert!(bar.is_due("0 %", now));
        assert!(!bar.is_due("1 %", now + BETWEEN_LINES / 2));
        assert!(bar.is_due("2 %", now + BETWEEN_LINES));
        assert!(bar.was_last("2 %") && !bar.was_last("2 %"), "once");
    }
}
