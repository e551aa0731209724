//! `snakepit eval` of commands that kill their workers: each death is a result, and the evaluation goes on.
//!
//! About `crates/evals/src/responders/pool_caller.rs` and `crates/cli/src/eval/run.rs`.

use serde_json::{Value as Json, json};

use super::fixture::{EvalFixture, SAMPLES, assert_refused};
use crate::support::{finish, worker};

const DIED: &str = "the worker of deadly exited with status 3";

/// Returns how the samples of the first experiment ended, and why some have no score.
fn counts(report: &Json) -> (Json, Vec<(String, String)>) {
    let summary = &report["experiments"][0];
    let text = |value: &Json| value.as_str().expect("text").to_owned();
    let unscored = summary["unscored"].as_array().expect("a list").iter();
    let unscored = unscored.map(|it| (text(&it["sample"]), text(&it["message"]))).collect();
    (summary["counts"].clone(), unscored)
}

#[test]
fn twelve_samples_in_a_row_that_end_their_worker_are_twelve_results() {
    let fixture = EvalFixture::new();
    let report = fixture.report(&["--limit", "12", "--experiment", "it=deadly"]);
    let (counts, unscored) = counts(&report);
    assert_eq!(counts, json!({ "passed": 0, "failed": 0, "errors": 12, "timeouts": 0, "missing": 0 }));
    assert!(unscored.iter().all(|(_, message)| message == DIED), "{unscored:?}");
    fixture.scene.assert_clean();
}

#[test]
fn every_third_sample_ends_its_worker_and_the_others_are_answered() {
    let fixture = EvalFixture::new();
    let experiment = "it={\"command\": \"deadly\", \"arguments\": {\"every\": 3}}";
    let mut eval = fixture.scene.verb("eval");
    eval.arg("data.jsonl").arg("-w").arg(worker("eval.py")).current_dir(fixture.home.path());
    eval.args(["--command", "deadly", "--workers", "3", "--json", "--experiment", experiment]);
    let done = finish(&mut eval);
    let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    let (counts, unscored) = counts(&report);
    assert_eq!(counts, json!({ "passed": 10, "failed": 0, "errors": 6, "timeouts": 0, "missing": 0 }));
    let dead: Vec<(String, String)> =
        (0..SAMPLES).step_by(3).map(|n| (format!("s{n}"), DIED.to_owned())).collect();
    assert_eq!(unscored, dead);
    fixture.scene.assert_clean();
}

#[test]
fn pools_of_a_configuration_tolerate_deaths_in_an_evaluation_whatever_their_restart_settings() {
    let fixture = EvalFixture::new();
    std::fs::copy(worker("eval.py"), fixture.path("eval.py")).expect("a worker");
    let strict = "[pool.it.restarts]\nfailures = 1\n[pool.it.quarantine]\ndeaths = 1\n[pool.it.breaker]\nfailures = 1\n";
    fixture.write("pools.toml", &format!("[pool.it]\nworker = \"eval.py\"\nworkers = 1\n{strict}"));
    let mut eval = fixture.scene.verb("eval");
    eval.args(["data.jsonl", "-c", "pools.toml", "--command", "deadly", "--json"]);
    let done = finish(eval.current_dir(fixture.home.path()));
    let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!(counts(&report).0["errors"], SAMPLES);
    fixture.scene.assert_clean();
}

#[test]
fn a_sample_that_shares_a_dying_worker_is_repeated() {
    let fixture = EvalFixture::new();
    std::fs::copy(worker("eval.py"), fixture.path("eval.py")).expect("a worker");
    fixture.write("pools.toml", "[pool.it]\nworker = \"eval.py\"\nworkers = 1\nconcurrency = 8\n");
    let mut eval = fixture.scene.verb("eval");
    eval.args([
        "data.jsonl",
        "-c",
        "pools.toml",
        "--concurrency",
        "8",
        "--json",
        "--command",
        "deadly_beside",
    ]);
    let done = finish(eval.current_dir(fixture.home.path()));
    let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    let (counts, unscored) = counts(&report);
    assert_eq!((&counts["passed"], &counts["errors"]), (&json!(14), &json!(2)), "{unscored:?}");
    let dead: Vec<&str> = unscored.iter().map(|(sample, _)| sample.as_str()).collect();
    assert_eq!(dead, ["s5", "s10"]);
    fixture.scene.assert_clean();
}

#[test]
fn workers_that_no_longer_start_end_the_evaluation_with_the_reason() {
    let fixture = EvalFixture::new();
    // The first worker removes what the next one needs, and then dies with its sample.
    fixture.write("needed.txt", "");
    std::fs::copy(worker("eval_last_life.py"), fixture.path("last_life.py")).expect("a worker");
    let mut eval = fixture.scene.verb("eval");
    eval.args([
        "data.jsonl",
        "-w",
        "last_life.py",
        "--command",
        "answer",
        "--workers",
        "1",
        "--timeout",
        "2s",
    ]);
    let done = finish(eval.current_dir(fixture.home.path()));
    assert_refused(&done, 1, &["cannot continue", "has no worker", "needed.txt", "--resume"]);
    assert_eq!(fixture.results(), 1);
    fixture.scene.assert_clean();
}
