//! `snakepit eval` with evaluators written in Python.
//!
//! About `crates/evals/src/evaluators/evaluator_function.rs` and `crates/cli/src/eval/run.rs`.

use serde_json::json;

use super::fixture::{EvalFixture, assert_refused};
use crate::support::{finish, worker};

fn fixture() -> EvalFixture {
    let fixture = EvalFixture::new();
    std::fs::copy(worker("eval_judge.py"), fixture.path("judge.py")).expect("a file");
    fixture
}

#[test]
fn a_function_of_another_file_judges() {
    let fixture = fixture();
    let report = fixture.report(&["--evaluator", "python:judge.py:strict", "--limit", "6"]);
    let summary = &report["experiments"][0];
    // s3 is not answered, s4 is not judged, and samples with an odd number get a quarter.
    assert_eq!(
        summary["counts"],
        json!({ "passed": 2, "failed": 2, "errors": 2, "timeouts": 0, "missing": 0 })
    );
    let stages: Vec<&str> = summary["unscored"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it["stage"].as_str().expect("text"))
        .collect();
    assert_eq!(stages, ["answer", "judge"]);
    assert_eq!(report["evaluator"], json!({ "python": { "file": "judge.py", "function": "strict" } }));
    let text = fixture.read("data.eval.jsonl");
    assert!(text.contains("\"why\":\"10 is no answer\""), "{text}");
    fixture.scene.assert_clean();
}

#[test]
fn evaluators_of_files_and_of_the_worker_are_combined_and_resumed() {
    let fixture = fixture();
    let both = ["--evaluator", "exact", "--evaluator", "python:judge.py:whole", "--evaluator", "judge:grade"];
    let first = fixture.report(&[&both[..], &["--limit", "2"]].concat());
    assert_eq!(first["experiments"][0]["counts"]["passed"], 2);
    let report = fixture.report(&[&both[..], &["--resume", "--limit", "5"]].concat());
    assert_eq!(report["experiments"][0]["counts"]["passed"], 4, "one raises");
    let other = finish(&mut fixture.eval(&["--resume", "--evaluator", "python:judge.py:strict"]));
    assert_refused(&other, 1, &["its evaluator is"]);
    fixture.scene.assert_clean();
}

#[test]
fn an_evaluator_that_is_not_there_is_refused_with_the_way_out() {
    let fixture = fixture();
    let missing = finish(&mut fixture.eval(&["--evaluator", "python:jugde.py:strict"]));
    assert_refused(&missing, 2, &["there is no evaluator file jugde.py", "python:FILE.py:FUNCTION"]);
    let unnamed = finish(&mut fixture.eval(&["--evaluator", "python:judge.py"]));
    assert_refused(&unnamed, 2, &["write python:judge.py:FUNCTION"]);
    for function in ["plain", "strcit"] {
        let evaluator = format!("python:judge.py:{function}");
        let done = finish(&mut fixture.eval(&["--evaluator", &evaluator]));
        assert_refused(&done, 1, &["cannot continue", function, "@snakepit.evaluator decorates"]);
    }
    assert_eq!(fixture.results(), 0);
    fixture.scene.assert_clean();
}

#[test]
fn an_evaluator_that_ends_its_worker_is_an_error_of_the_evaluator_each_time() {
    let fixture = fixture();
    let report = fixture.report(&["--evaluator", "python:judge.py:deadly", "--limit", "6"]);
    let summary = &report["experiments"][0];
    assert_eq!(
        summary["counts"],
        json!({ "passed": 0, "failed": 0, "errors": 6, "timeouts": 0, "missing": 0 })
    );
    let of_judge = summary["unscored"].as_array().expect("a list").iter().filter(|it| it["stage"] == "judge");
    assert_eq!(of_judge.count(), 5);
    fixture.scene.assert_clean();
}
