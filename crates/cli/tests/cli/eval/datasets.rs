//! `snakepit eval` with unusual data sets: byte order marks, numbers outside JSON, samples without an answer, and samples
//! added since the last run.
//!
//! About `crates/evals/src/plan/dataset.rs`, `crates/evals/src/plan/sample_json.rs` and `crates/cli/src/eval/run.rs`.

use serde_json::{Value as Json, json};

use super::fixture::{EvalFixture, assert_refused, timeless};
use crate::support::finish;

#[test]
fn raising_the_limit_evaluates_only_the_new_samples() {
    let fixture = EvalFixture::new();
    assert_eq!(fixture.report(&["--limit", "5"])["samples"], 5);
    assert_eq!(fixture.results(), 5);
    let done = finish(&mut fixture.eval(&["--json", "--resume", "--limit", "10"]));
    let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!((&report["samples"], &report["complete"]), (&json!(10), &json!(true)));
    assert!(done.stderr.contains("5 of 10 results exist already"), "{done:?}");
    let whole = fixture.report(&["--resume"]);
    assert_eq!(whole["experiments"][0]["counts"]["passed"], 14);
    let untroubled = EvalFixture::new();
    assert_eq!(timeless(whole), timeless(untroubled.report(&[])));
    // The file has two more heads, and each sample once.
    let text = fixture.read("data.eval.jsonl");
    assert_eq!(text.lines().filter(|line| line.contains("\"sample\"")).count(), 16);
    assert_eq!(text.lines().filter(|line| line.contains("\"snakepit_eval\"")).count(), 3);
    let fewer = finish(&mut fixture.eval(&["--resume", "--limit", "5"]));
    assert_refused(&fewer, 1, &["has 16 samples, and the given one has only 5", "--checkpoint"]);
    fixture.scene.assert_clean();
}

#[test]
fn a_byte_order_mark_and_crlf_line_ends_are_ignored() {
    let fixture = EvalFixture::new();
    let text = fixture.read("data.jsonl");
    fixture.write("data.jsonl", &format!("\u{feff}{}", text.replace('\n', "\r\n")));
    assert_eq!(fixture.report(&["--limit", "3"])["experiments"][0]["counts"]["passed"], 3);
    fixture.scene.assert_clean();
}

#[test]
fn an_invalid_line_is_refused_with_its_number_and_the_way_out() {
    let fixture = EvalFixture::new();
    let good = "{\"input\": {\"n\": 1}, \"expected\": 2}\n";
    for (line, words) in [
        ("{\"input\": {\"n\": 1}}", ["it has no \"expected\"", "judge:COMMAND"]),
        ("{\"input\": {\"n\": NaN}, \"expected\": 1}", ["it holds NaN", "write null"]),
        ("{\"input\": 1, \"expected\": -Infinity}", ["it holds -Infinity", "leave the sample out"]),
        (
            "{\"input\": {\"n\": 1}, \"expected\": 100000000000000000000}",
            ["the integer 100000000000000000000 has more than 64 bits", "as a text"],
        ),
    ] {
        fixture.write("data.jsonl", &format!("{good}{line}\n"));
        let done = finish(&mut fixture.eval(&[]));
        assert_refused(&done, 2, &["line 2 of the data set: ", words[0], words[1]]);
        assert!(!fixture.path("data.eval.jsonl").exists(), "nothing is left behind");
    }
    std::fs::write(fixture.path("data.jsonl"), b"\xff\xfe{\0").expect("a file");
    assert_refused(&finish(&mut fixture.eval(&[])), 2, &["line 1 of the data set: it is UTF-16", "iconv"]);
    fixture.scene.assert_clean();
}

#[test]
fn integers_of_any_size_are_compared_digit_by_digit_and_an_answer_of_nan_is_an_error() {
    let fixture = EvalFixture::new();
    let digits = "100000000000000000000000000000000000000000000000001";
    let sample = |id: &str, power: u32, expected: Json| {
        json!({ "id": id, "input": { "power": power }, "expected": expected }).to_string() + "\n"
    };
    let samples = [
        sample("huge", 50, json!(digits)),
        sample("rounded", 50, json!(digits.replace('1', "2"))),
        sample("large", 25, json!("10000000000000000000000001")),
        sample("neighbour", 16, json!(10_000_000_000_000_000_u64)),
        sample("small", 1, json!(11)),
        sample("none", 0, json!(null)),
    ];
    fixture.write("data.jsonl", &samples.concat());
    let report = fixture.report(&["--experiment", "it=above_a_power_of_ten"]);
    let summary = &report["experiments"][0];
    assert_eq!(
        summary["counts"],
        json!({ "passed": 3, "failed": 2, "errors": 1, "timeouts": 0, "missing": 0 })
    );
    assert_eq!(summary["unscored"][0]["sample"], "none");
    let message = summary["unscored"][0]["message"].as_str().expect("text");
    assert!(message.contains("the answer holds NaN"), "{message}");
    fixture.scene.assert_clean();
}
