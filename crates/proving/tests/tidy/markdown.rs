//! Markdown files are well formed: a parser would otherwise take headings, tables and code for the text before them.

use std::fs;
use std::process::Command;

use super::{assert_none, lines_of, root};

fn is_heading(line: &str) -> bool {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with(' ')
}

/// Reports whether a line separates the header of a table from its rows.
fn is_delimiter(row: &str) -> bool {
    row.contains('-') && row.chars().all(|c| "|-: ".contains(c))
}

/// Returns what is wrong in the text of a page.
fn problems(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fence = None;
    let mut rows = 0;
    let mut before = "";
    for (number, line) in (1..).zip(text.lines().map(str::trim_end)) {
        let mut report = |what: &str| found.push(format!("{number}: {what}: {line}"));
        let trimmed = line.trim_start();
        // A comment, which hides code from readers, may stand directly above what it belongs to.
        let is_free = before.is_empty() || before.ends_with("-->");
        if let Some(opened) = fence {
            if trimmed == opened {
                fence = None;
            }
        } else if trimmed.starts_with("```") {
            fence = Some("```");
            if !is_free {
                report("a code fence without a blank line before it");
            }
        } else {
            if is_heading(line) && !before.is_empty() {
                report("a heading without a blank line before it");
            }
            if !line.is_empty() && line == before {
                report("a line that is written twice");
            }
            rows = if trimmed.starts_with('|') { rows + 1 } else { 0 };
            if rows == 1 && !is_free {
                report("a table without a blank line before it");
            }
            if rows > 0 && (rows == 2) != is_delimiter(trimmed) {
                report("a table whose second line, and no other, should delimit its header");
            }
        }
        before = line;
    }
    if fence.is_some() {
        found.push("a code fence that is never closed".to_owned());
    }
    found
}

#[test]
fn pages_are_well_formed() {
    let listed = lines_of(Command::new("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.md",
    ]));
    assert!(listed.len() > 40, "git lists only {listed:?}");
    // A file that is removed but not yet committed is no page any more.
    let pages = listed.iter().filter_map(|path| Some((path, fs::read_to_string(root().join(path)).ok()?)));
    let found: Vec<String> = pages
        .flat_map(|(path, text)| problems(&text).into_iter().map(move |it| format!("{path}:{it}")))
        .collect();
    assert_none(&found, "correct these lines");
}

#[test]
fn pages_with_joined_parts_are_found() {
    let good = "# A\n\ntext\n\n| a |\n|---|\n| b |\n\n```\n# c\n| d |\n```\n\n<!-- rust: x -->\n```\n```\n";
    assert_eq!(problems(good), Vec::<String>::new());
    for bad in [
        "text\n# A\n",
        "text\n```\n```\n",
        "text\n| a |\n|---|\n",
        "| a |\n| a |\n|---|\n",
        "a\na\n",
        "```\n",
    ] {
        assert!(!problems(bad).is_empty(), "{bad:?}");
    }
}
