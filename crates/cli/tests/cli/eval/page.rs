//! The page of `snakepit eval --html` shows what went wrong, and is written completely or not at all.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::fixture::{EvalFixture, assert_refused};
use crate::support::{finish, worker};

/// Returns the names of the files in the directory.
fn files(fixture: &EvalFixture) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.home.path()).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the text between the first occurrences of two marks.
#[track_caller]
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("{from} is missing")) + from.len();
    let end = text[start..].find(to).unwrap_or_else(|| panic!("{to} is missing"));
    &text[start..start + end]
}

#[test]
fn the_page_shows_wrong_answers_with_what_was_asked_expected_and_answered() {
    let fixture = EvalFixture::new();
    fixture.report(&["--experiment", "plain", "--experiment", "careless", "--html", "report.html"]);
    let page = fixture.read("report.html");
    let careless = between(&page, "Wrong answers in careless: 7</h3>", "</section>");
    let five = between(careless, "<h4>s5<", "</article>");
    for words in [
        "score 0.000",
        "<h5>Input</h5><pre>{\n  &quot;n&quot;: 5\n}</pre>",
        "<h5>Expected</h5><pre>10</pre>",
        "<h5>Output</h5><pre>5</pre>",
        "<pre><del>10</del><ins>5</ins></pre>",
    ] {
        assert!(five.contains(words), "{words} is missing: {five}");
    }
    // The failures are grouped by experiment and kind.
    assert_eq!(page.matches("class=\"group x0 ").count(), 2, "an error and a timeout of the first");
    assert_eq!(page.matches("class=\"group x1 ").count(), 3);
    for choice in ["x-all", "x0", "x1", "k-all", "k-failed", "k-errors", "k-timeouts"] {
        assert_eq!(page.matches(&format!("id=\"{choice}\"")).count(), 1, "{choice}");
    }
    for rule in
        ["#x1:checked~.group:not(.x1){display:none}", "#k-failed:checked~.group:not(.failed){display:none}"]
    {
        assert!(page.contains(rule), "{rule}");
    }
    let error = between(&page, "Errors in plain: 1</h3>", "</section>");
    assert!(error.contains("of the command") && error.contains("&lt;three&gt; is too much"), "{error}");
    assert!(!page.contains("Missing results"), "there are none");
    fixture.scene.assert_clean();
}

#[test]
fn many_wrong_answers_come_in_pages() {
    let fixture = EvalFixture::new();
    let line =
        |n: u32| json!({ "id": format!("s{n}"), "input": { "n": n }, "expected": n + 1 }).to_string() + "\n";
    fixture.write("data.jsonl", &(0..60).map(line).collect::<String>());
    fixture.report(&["--experiment", "zero=constant", "--html", "report.html"]);
    let page = fixture.read("report.html");
    assert!(page.contains("Wrong answers in zero: 60</h3>"));
    assert_eq!(page.matches("<article>").count(), 60);
    assert_eq!(page.matches("<div class=\"page\">").count(), 3);
    assert_eq!(page.matches("name=\"p0-failed\"").count(), 3);
    for label in ["1–25", "26–50", "51–60"] {
        assert!(page.contains(&format!(">{label}</label>")), "{label}");
    }
    let second = between(&page, ">s25<", ">s50<");
    assert!(second.contains(">s49<"), "the second page");
    assert!(page.contains(".group>.pick:nth-of-type(3):checked~.pages>.page:nth-child(3){display:block}"));
    fixture.scene.assert_clean();
}

#[test]
fn markup_in_samples_and_answers_is_escaped() {
    let fixture = EvalFixture::new();
    let mean = "</pre><script>alert(1)</script>\u{1b}[31m\u{202e}";
    let sample = json!({ "id": mean, "input": { "text": mean }, "expected": "\u{1b}]0;title\u{7}" });
    fixture.write("data.jsonl", &(sample.to_string() + "\n"));
    let done = finish(&mut fixture.eval(&["--experiment", "it=echo", "--html", "report.html"]));
    done.assert_status(0);
    for text in [&done.stdout, &done.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    let page = fixture.read("report.html");
    assert!(!page.contains("<script"));
    assert!(!page.contains(['\u{1b}', '\u{7}', '\u{202e}']));
    for words in ["&lt;/pre&gt;&lt;script&gt;alert(1)", "\\u{1b}[31m\\u{202e}", "\\u{1b}]0;title\\u{7}"] {
        assert!(page.contains(words), "{words}");
    }
    fixture.scene.assert_clean();
}

#[test]
fn a_run_that_fails_leaves_no_page_and_keeps_the_one_that_was_there() {
    let fixture = EvalFixture::new();
    let before = files(&fixture);
    let missing = ["--experiment", "x=anwser", "--html", "report.html"];
    assert_refused(&finish(&mut fixture.eval(&missing)), 1, &["anwser"]);
    let left: Vec<String> = files(&fixture).into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(left, ["data.eval.jsonl"], "nothing but the checkpoint");
    fixture.write("report.html", "the page of yesterday");
    assert_refused(&finish(&mut fixture.eval(&missing)), 1, &["anwser"]);
    assert_eq!(fixture.read("report.html"), "the page of yesterday");
    // A run that succeeds replaces the page. The new page is as readable as any other file, and no other file is left.
    fixture.report(&["--html", "report.html"]);
    assert!(fixture.read("report.html").ends_with("</html>\n"));
    let mode =
        |file: &str| std::fs::metadata(fixture.path(file)).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode("report.html"), mode("data.eval.jsonl"));
    assert_eq!(files(&fixture).len(), before.len() + 2);
    fixture.scene.assert_clean();
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_anybody_is_asked() {
    let fixture = EvalFixture::new();
    for (place, words) in [("nowhere/report.html", "No such file"), (".", "s a directory")] {
        let done = finish(&mut fixture.eval(&["--html", place]));
        assert_refused(&done, 125, &["cannot write the report", words]);
    }
    // A path that is not a regular file is written to directly.
    let mut eval = fixture.eval(&["--html", "/dev/stdout", "--limit", "2"]);
    let done = finish(&mut eval);
    assert!(done.assert_status(0).stdout.contains("</html>"), "{done:?}");
    fixture.scene.assert_clean();
}

#[test]
fn an_error_of_the_evaluator_is_told_apart_from_one_of_the_command() {
    let fixture = EvalFixture::new();
    std::fs::copy(worker("eval_judge.py"), fixture.path("judge.py")).expect("a file");
    let judged = ["--evaluator", "python:judge.py:strict", "--limit", "6", "--html", "report.html"];
    let done = finish(&mut fixture.eval(&judged));
    done.assert_status(0);
    assert!(done.stdout.contains("s3  error: ValueError: <three> is too much"), "{}", done.stdout);
    assert!(
        done.stdout.contains("s4  error of the evaluator: RuntimeError: four is not for me"),
        "{}",
        done.stdout
    );
    let page = fixture.read("report.html");
    let four = between(&page, "<h4>s4<", "</article>");
    assert!(four.contains("of the evaluator") && four.contains("<h5>Output</h5><pre>8</pre>"), "{four}");
    let five = between(&page, "<h4>s5<", "</article>");
    assert!(five.contains("score 0.250") && five.contains("10 is no answer"), "{five}");
    fixture.scene.assert_clean();
}
