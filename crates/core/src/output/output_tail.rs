//! The part of a worker's output that is kept, and what an error shows of it: the first lines of a call, its last
//! lines, and the lines in between that say why it failed. Bounded, however much is printed.

use std::collections::VecDeque;

use super::{OutputLine, OutputStream, WorkerOutput};

/// The most lines that are kept of one worker, not counting first lines and reasons.
pub(super) const KEPT_LINES: usize = 200;
/// The most bytes of these lines.
const KEPT_BYTES: usize = 64 * 1024;
/// How many of the first lines of a call an error shows.
pub(super) const FIRST_LINES: usize = 20;
/// How many of the last lines an error shows.
pub(super) const LAST_LINES: usize = 60;
/// How many lines from before the call an error shows, if the call printed nothing.
const EARLIER_LINES: usize = 20;
/// The most lines that are kept because they say why something failed.
const REASONS: usize = 24;
/// The most bytes that are kept of a line that is no longer among the last lines.
const OLD_LINE_LIMIT: usize = 1024;

/// The heading of lines that were printed before the call.
pub(super) const EARLIER: &str = "(nothing was printed in this call; before it:)";

/// A line, and the number of lines before it.
type Numbered = (u64, String);

/// The last lines of a worker, and some of the lines before them.
#[derive(Debug, Default)]
pub(super) struct OutputTail {
    lines: VecDeque<OutputLine>,
    bytes: usize,
    dropped: u64,
    /// The number of lines when they were last reported.
    told: u64,
    /// Dropped lines that are among the first lines of the current call.
    first: Vec<Numbered>,
    /// Dropped lines that say why something failed.
    reasons: VecDeque<Numbered>,
    finder: ReasonFinder,
}

impl OutputTail {
    /// Adds a line. The current call began after `begun` lines.
    pub(super) fn push(&mut self, line: OutputLine, begun: u64) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > KEPT_LINES || self.bytes > KEPT_BYTES {
            let Some(line) = self.lines.pop_front() else { break };
            self.bytes -= line.text.len();
            self.drop_line(line, begun);
        }
    }

    fn drop_line(&mut self, mut line: OutputLine, begun: u64) {
        let number = self.dropped;
        self.dropped += 1;
        let is_reason = self.finder.is_reason(&line);
        let is_first = (begun..begun + FIRST_LINES as u64).contains(&number);
        if !is_reason && !is_first {
            return;
        }
        shorten(&mut line.text);
        if is_first {
            self.first.retain(|(number, _)| *number >= begun);
            self.first.push((number, line.text));
        } else {
            if self.reasons.len() == REASONS {
                self.reasons.pop_front();
            }
            self.reasons.push_back((number, line.text));
        }
    }

    fn all(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }

    /// Returns the last lines.
    pub(super) fn lines(&self) -> WorkerOutput {
        WorkerOutput { lines: self.lines.iter().cloned().collect(), dropped: self.dropped }
    }

    /// Returns what an error shows of the lines after line `since` that were not reported yet.
    pub(super) fn untold(&mut self, since: u64) -> Vec<String> {
        let since = since.max(self.told);
        self.told = self.all();
        self.excerpt(since, &[])
    }

    /// Returns what an error shows of a call that began after `since` lines. `take` may remove some of the last lines
    /// first. `unfinished` are lines without a line end.
    pub(super) fn shown<T>(
        &self,
        since: u64,
        unfinished: Vec<String>,
        take: impl FnOnce(&mut Vec<String>) -> T,
    ) -> (Vec<String>, T) {
        let mut left: Vec<String> = self.lines.iter().map(|line| line.text.clone()).collect();
        let taken = take(&mut left);
        let removed = self.removed(&left);
        let mut shown = self.excerpt(since, &removed);
        shown.extend(unfinished);
        if shown.is_empty() {
            shown = self.earlier(since, &removed);
        }
        (shown, taken)
    }

    /// Returns the numbers of the last lines that are missing from `left`, which has the same order.
    fn removed(&self, left: &[String]) -> Vec<u64> {
        let mut left = left.iter().peekable();
        let is_removed = |line: &OutputLine| left.next_if(|text| **text == line.text).is_none();
        let removed: Vec<bool> = self.lines.iter().map(is_removed).collect();
        (self.dropped..).zip(removed).filter_map(|(number, removed)| removed.then_some(number)).collect()
    }

    /// Returns the last lines before line `since`.
    fn earlier(&self, since: u64, removed: &[u64]) -> Vec<String> {
        let numbered = (self.dropped..).zip(&self.lines);
        let before = numbered.filter(|(number, _)| *number < since && !removed.contains(number));
        let mut texts: Vec<String> = before.map(|(_, line)| line.text.clone()).collect();
        let mut shown = texts.split_off(texts.len().saturating_sub(EARLIER_LINES));
        if !shown.is_empty() {
            shown.insert(0, EARLIER.into());
        }
        shown
    }

    /// Returns the first lines after line `since`, the last lines, and the lines between them that say why something
    /// failed. A line in each gap counts what is left out.
    fn excerpt(&self, since: u64, removed: &[u64]) -> Vec<String> {
        let all = self.all();
        let mut finder = self.finder.clone();
        let in_ring = (self.dropped..).zip(&self.lines).filter(|(number, line)| {
            let is_reason = finder.is_reason(line);
            let is_first = *number < since + FIRST_LINES as u64;
            let is_last = *number + LAST_LINES as u64 >= all;
            (is_first || is_last || is_reason) && !removed.contains(number)
        });
        let old = self.first.iter().chain(&self.reasons).map(|(number, text)| (*number, text.as_str()));
        let ring = in_ring.map(|(number, line)| (number, line.text.as_str()));
        let mut shown: Vec<(u64, &str)> = old.chain(ring).filter(|(number, _)| *number >= since).collect();
        shown.sort_by_key(|(number, _)| *number);
        let (mut texts, mut next) = (Vec::with_capacity(shown.len() + 2), since);
        for (number, text) in shown {
            let gap = number - next - removed.iter().filter(|it| (next..number).contains(it)).count() as u64;
            if gap > 0 {
                texts.push(left_out(gap));
            }
            texts.push(text.to_owned());
            next = number + 1;
        }
        texts
    }
}

fn left_out(lines: u64) -> String {
    if lines == 1 { "… 1 line left out …".into() } else { format!("… {lines} lines left out …") }
}

fn shorten(text: &mut String) {
    if text.len() > OLD_LINE_LIMIT {
        text.truncate(text.floor_char_boundary(OLD_LINE_LIMIT));
        text.push('…');
    }
}

/// Finds the lines that say why a program failed. Takes lines in the order in which they were printed.
#[derive(Clone, Debug, Default)]
struct ReasonFinder {
    /// The stream of the current Python traceback, and the prefix of each of its lines.
    in_traceback: Option<(OutputStream, String)>,
    /// The stream whose next line has the message of a panic.
    in_panic: Option<OutputStream>,
}

impl ReasonFinder {
    fn is_reason(&mut self, line: &OutputLine) -> bool {
        let (stream, text) = (line.stream, line.text.as_str());
        // A Rust panic has its message in the line after its location.
        if self.in_panic.take_if(|its| *its == stream).is_some() {
            return true;
        }
        if text.starts_with("thread '") && text.contains(" panicked at ") {
            self.in_panic = Some(stream);
            return true;
        }
        if let Some((before, _)) = text.split_once("Traceback (most recent call last):") {
            self.in_traceback = Some((stream, before.to_owned()));
            return true;
        }
        // The first line after the heading that is not indented is the exception.
        let is_indented = |before: &str| text.strip_prefix(before).unwrap_or(text).starts_with([' ', '\t']);
        if self.in_traceback.take_if(|(its, before)| *its == stream && !is_indented(before)).is_some() {
            return true;
        }
        REASON_STARTS.iter().any(|start| text.starts_with(start))
            || text.starts_with("==") && text.contains("==ERROR: ")
    }
}

/// The beginnings of lines in which a program says why it ends: Go, Python's faulthandler, C++.
const REASON_STARTS: [&str; 6] =
    ["panic: ", "fatal error: ", "Fatal Python error: ", "[signal ", "terminate called ", "  what():  "];

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(lines: impl IntoIterator<Item = String>) -> OutputTail {
        let mut kept = OutputTail::default();
        lines.into_iter().for_each(|text| kept.push(OutputLine { stream: OutputStream::Stderr, text }, 0));
        kept
    }

    fn numbers(range: std::ops::Range<u32>) -> impl Iterator<Item = String> {
        range.map(|number| number.to_string())
    }

    fn shown(kept: &OutputTail, since: u64) -> Vec<String> {
        kept.shown(since, Vec::new(), |_| ()).0
    }

    #[test]
    fn the_first_and_last_lines_of_a_call_are_shown_and_the_rest_is_counted() {
        for count in [0, 1, 79, 80] {
            assert_eq!(shown(&kept(numbers(0..count)), 0), numbers(0..count).collect::<Vec<_>>());
        }
        for count in [81, 200, 201, 1000] {
            let shown = shown(&kept(numbers(0..count)), 0);
            let hidden = u64::from(count) - 80;
            let expected: Vec<String> =
                numbers(0..20).chain([left_out(hidden)]).chain(numbers(count - 60..count)).collect();
            assert_eq!(shown, expected, "{count}");
        }
    }

    #[test]
    fn only_lines_of_the_call_are_shown_unless_it_printed_none() {
        let kept = kept(numbers(0..30));
        assert_eq!(shown(&kept, 28), ["28", "29"]);
        let earlier: Vec<String> = [EARLIER.to_owned()].into_iter().chain(numbers(10..30)).collect();
        assert_eq!(shown(&kept, 30), earlier);
        assert_eq!(kept.shown(30, vec!["half".into()], |_| ()).0, ["half"]);
        assert!(shown(&OutputTail::default(), 0).is_empty());
    }

    #[test]
    fn the_first_lines_shown_are_those_of_the_current_call() {
        let mut kept = kept(numbers(0..500));
        for text in numbers(500..1500) {
            kept.push(OutputLine { stream: OutputStream::Stderr, text }, 500);
        }
        let shown = shown(&kept, 500);
        assert_eq!((shown[0].as_str(), shown[19].as_str()), ("500", "519"));
        assert_eq!((shown[20].as_str(), shown.len()), ("… 920 lines left out …", 81));
    }

    #[test]
    fn the_reason_of_a_panic_is_shown_however_long_its_backtrace_is() {
        let chatter = |what: &'static str| (0..300).map(move |n| format!("  {what} {n}"));
        let text = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for reason in [
            "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds",
            "panic: runtime error: index out of range [5] with length 3",
            "fatal error: all goroutines are asleep - deadlock!",
            "Fatal Python error: Segmentation fault",
        ] {
            let all = chatter("before").chain(text(reason)).chain(chatter("frame"));
            let shown = shown(&kept(all), 0).join("\n");
            assert!(shown.contains(reason), "{reason}: {shown}");
        }
        for mark in ["", "[rank0]: "] {
            let first = format!("{mark}Traceback (most recent call last):");
            let last = format!("{mark}ValueError: too deep");
            let frames = chatter("File").map(|frame| format!("{mark}{frame}"));
            let raised = std::iter::once(first.clone()).chain(frames).chain([last.clone()]);
            let shown = shown(&kept(chatter("before").chain(raised).chain(chatter("after"))), 0);
            assert!(shown.contains(&first) && shown.contains(&last), "{shown:?}");
        }
    }

    #[test]
    fn lines_that_were_taken_out_do_not_count_as_left_out() {
        let lines = ["one", "two", "two", "three", "four"].map(str::to_owned);
        let kept = kept(lines);
        let (shown, taken) = kept.shown(0, Vec::new(), |lines| lines.remove(1) + &lines.remove(2));
        assert_eq!((shown.join(" "), taken.as_str()), ("one two four".into(), "twothree"));
    }

    #[test]
    fn kept_and_shown_output_is_bounded_whatever_is_printed() {
        let long = |n: u32| format!("panic: {n} {}", "ä".repeat(4000));
        let kept = kept((0..2000).map(long));
        let size = |numbered: &Numbered| numbered.1.len();
        let old: usize = kept.first.iter().chain(&kept.reasons).map(size).sum();
        let last: usize = kept.lines.iter().map(|line| line.text.len()).sum();
        assert!(last <= KEPT_BYTES && old <= (FIRST_LINES + REASONS) * (OLD_LINE_LIMIT + 3), "{last}, {old}");
        assert!(shown(&kept, 0).iter().map(String::len).sum::<usize>() < 128 * 1024);
    }
}
