//! Where two texts differ, word by word, as HTML. Hand-written since it is forty lines, and what a page needs is its bound: texts
//! that would take long are not compared.

use super::html::escaped;

/// So many pairs of words are compared at the most.
const MOST_PAIRS: usize = 250_000;

/// What only `old` has within `<del>`, what only `new` has within `<ins>`; nothing if they are the same or too long.
pub(super) fn marked(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (old, new) = (words(old), words(new));
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let after = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_middle, new_middle) = (&old_rest[..old_rest.len() - after], &new_rest[..new_rest.len() - after]);
    if old_middle.len() * new_middle.len() > MOST_PAIRS {
        return None;
    }
    let mut html = Html::default();
    old[..before].iter().for_each(|word| html.push(Mark::Both, word));
    for (mark, word) in steps(old_middle, new_middle) {
        html.push(mark, word);
    }
    old_rest[old_rest.len() - after..].iter().for_each(|word| html.push(Mark::Both, word));
    Some(html.end())
}

/// Who has a word.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Mark {
    #[default]
    Both,
    Old,
    New,
}

/// Words, runs of spaces, and each other sign by itself.
fn words(text: &str) -> Vec<&str> {
    let kind = |letter: char| match letter {
        letter if letter.is_alphanumeric() => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut words = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, letter) in text.char_indices() {
        let this = kind(letter);
        if last.is_some_and(|last| last != this || this == 2) {
            words.push(&text[start..at]);
            start = at;
        }
        last = Some(this);
    }
    if start < text.len() {
        words.push(&text[start..]);
    }
    words
}

/// The longest common subsequence, as the steps from one to the other.
fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(Mark, &'a str)> {
    let wide = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * wide];
    for at in (0..old.len()).rev() {
        for to in (0..new.len()).rev() {
            longest[at * wide + to] = if old[at] == new[to] {
                longest[(at + 1) * wide + to + 1] + 1
            } else {
                longest[(at + 1) * wide + to].max(longest[at * wide + to + 1])
            };
        }
    }
    let (mut at, mut to, mut steps) = (0, 0, Vec::new());
    while at < old.len() || to < new.len() {
        if at < old.len() && to < new.len() && old[at] == new[to] {
            steps.push((Mark::Both, old[at]));
            (at, to) = (at + 1, to + 1);
        } else if to == new.len()
            || at < old.len() && longest[(at + 1) * wide + to] >= longest[at * wide + to + 1]
        {
            steps.push((Mark::Old, old[at]));
            at += 1;
        } else {
            steps.push((Mark::New, new[to]));
            to += 1;
        }
    }
    steps
}

#[derive(Default)]
struct Html {
    text: String,
    mark: Mark,
}

impl Html {
    fn push(&mut self, mark: Mark, word: &str) {
        if mark != self.mark {
            self.close();
            self.text.push_str(match mark {
                Mark::Both => "",
                Mark::Old => "<del>",
                Mark::New => "<ins>",
            });
            self.mark = mark;
        }
        self.text.push_str(&escaped(word));
    }

    fn close(&mut self) {
        self.text.push_str(match self.mark {
            Mark::Both => "",
            Mark::Old => "</del>",
            Mark::New => "</ins>",
        });
    }

    fn end(mut self) -> String {
        self.close();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_only_one_has_are_marked() {
        for (old, new, html) in [
            ("a b c", "a x c", "a <del>b</del><ins>x</ins> c"),
            ("", "new", "<ins>new</ins>"),
            ("42", "43", "<del>42</del><ins>43</ins>"),
            ("one two", "one", "one<del> two</del>"),
            ("a<b>", "a<i>", "a&lt;<del>b</del><ins>i</ins>&gt;"),
        ] {
            assert_eq!(marked(old, new).as_deref(), Some(html), "{old} → {new}");
        }
        assert_eq!(marked("same", "same"), None);
    }

    #[test]
    fn what_is_unmarked_or_deleted_is_the_old_text_and_the_rest_the_new() {
        let (old, new) = ("{\"a\": [1, 2, 3]}", "{\"a\": [1, 3, 4], \"b\": 2}");
        let html = marked(old, new).expect("they differ");
        let without = |html: &str, tag: &str| {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            let mut rest = String::new();
            for part in html.split(&open) {
                rest.push_str(part.split_once(&close).map_or(part, |(_, after)| after));
            }
            rest
        };
        let plain = |html: String| {
            html.replace("<del>", "").replace("</del>", "").replace("<ins>", "").replace("</ins>", "")
        };
        assert_eq!(plain(without(&html, "ins")), escaped(old));
        assert_eq!(plain(without(&html, "del")), escaped(new));
    }

    #[test]
    fn texts_that_would_take_long_are_not_compared() {
        let long = |word: &str| format!("{word} ").repeat(600);
        assert_eq!(marked(&long("a"), &long("b")), None);
    }
}
