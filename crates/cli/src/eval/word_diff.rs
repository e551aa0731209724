//! Shows as HTML where two texts differ, word by word. `similar` compares. This file splits texts into words and bounds
//! the work for a page.

use maud::{Markup, html};
use similar::{Algorithm, ChangeTag, capture_diff_slices};
use snakepit::value::harmless;

/// The maximum number of pairs of words to compare.
const MOST_PAIRS: usize = 250_000;

/// Marks the words that are only in `old` as deleted and those only in `new` as inserted. Returns `None` if the texts
/// are equal or too long.
pub(super) fn marked(old: &str, new: &str) -> Option<Markup> {
    if old == new {
        return None;
    }
    let (old, new) = (words(old), words(new));
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (old[before..].iter().rev(), new[before..].iter().rev());
    let same = before + old_rest.zip(new_rest).take_while(|(old, new)| old == new).count();
    if (old.len() - same) * (new.len() - same) > MOST_PAIRS {
        return None;
    }
    let changes = capture_diff_slices(Algorithm::Myers, &old, &new);
    Some(html! {
        @for (tag, words) in changes.iter().flat_map(|change| change.iter_slices(&old, &new)) {
            @match tag {
                ChangeTag::Equal => { (harmless(&words.concat())) }
                ChangeTag::Delete => { del { (harmless(&words.concat())) } }
                ChangeTag::Insert => { ins { (harmless(&words.concat())) } }
            }
        }
    })
}

/// Splits a text into words, runs of spaces, and single other characters.
fn words(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        c if c.is_alphanumeric() => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut words = Vec::new();
    let (mut start, mut last) = (0, None);
    for (at, c) in text.char_indices() {
        if last.is_some_and(|last| last != class(c) || last == 2) {
            words.push(&text[start..at]);
            start = at;
        }
        last = Some(class(c));
    }
    if start < text.len() {
        words.push(&text[start..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(old: &str, new: &str) -> Option<String> {
        super::marked(old, new).map(Markup::into_string)
    }

    #[test]
    fn words_that_only_one_text_contains_are_marked() {
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
    fn removing_insertions_gives_the_old_text_and_removing_deletions_the_new_one() {
        let (old, new) = ("{\"a\": [1, 2, 3]}", "{\"a\": [1, 3, 4], \"b\": 2}");
        let page = marked(old, new).expect("they differ");
        let without = |page: &str, tag: &str| {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            let mut rest = String::new();
            for part in page.split(&open) {
                rest.push_str(part.split_once(&close).map_or(part, |(_, after)| after));
            }
            rest
        };
        let plain = |page: String| {
            page.replace("<del>", "").replace("</del>", "").replace("<ins>", "").replace("</ins>", "")
        };
        assert_eq!(plain(without(&page, "ins")), html! { (old) }.into_string());
        assert_eq!(plain(without(&page, "del")), html! { (new) }.into_string());
    }

    #[test]
    fn texts_too_long_to_compare_quickly_are_not_compared() {
        let long = |word: &str| format!("{word} ").repeat(600);
        assert_eq!(marked(&long("a"), &long("b")), None);
    }
}
