//! Checkpoints whose plan has grown, and data sets that an evaluator rejects.

use std::path::Path;

use serde_json::{Value as Json, json};
use snakepit::evals::{
    Dataset, EvalError, EvalJournal, EvalPlan, EvalReport, EvalRequest, Evaluation, Evaluator, Experiment,
    Responder,
};
use snakepit::loops::HandlerFailure;

fn data(count: i64) -> Dataset {
    let line = |n: i64| json!({ "id": format!("s{n}"), "input": n, "expected": n % 3 }).to_string();
    Dataset::parse(&(0..count).map(line).collect::<Vec<_>>().join("\n")).expect("a data set")
}

fn plan(dataset: Dataset, experiments: &[&str]) -> EvalPlan {
    let experiments = experiments.iter().map(|name| Experiment::named(*name)).collect();
    EvalPlan::new(dataset, Evaluator::Exact, experiments).expect("a plan")
}

/// Evaluates what a checkpoint lacks. Returns how many samples were asked, and the report on all.
async fn finish(file: &Path, plan: EvalPlan) -> (usize, EvalReport) {
    let mut journal = EvalJournal::resume(file, &plan).expect("a journal");
    let found = journal.found().records;
    let asked = Responder::function(|request: EvalRequest| async move {
        Ok::<i64, HandlerFailure>(request.sample.input.as_i64().unwrap_or(0) % 2)
    });
    let report = Evaluation::new(plan).run_over(&asked, &mut journal, |_| {}).await.expect("a report");
    (journal.records().len() - found, report)
}

fn timeless(report: &EvalReport) -> Json {
    let mut report = serde_json::to_value(report).expect("JSON");
    for experiment in report["experiments"].as_array_mut().expect("experiments") {
        experiment.as_object_mut().expect("an object").remove("latency_ms").expect("latencies");
    }
    report
}

#[tokio::test]
async fn an_evaluation_can_be_extended_to_more_samples() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, whole) = (home.path().join("grown.jsonl"), home.path().join("whole.jsonl"));
    let grown = |samples| plan(data(40).first(samples), &["it"]);
    assert_eq!(finish(&file, grown(20)).await.0, 20);
    assert_eq!(finish(&file, grown(25)).await.0, 5);
    // With more experiments at the same time, and then again with nothing to do.
    let both = || plan(data(40), &["it", "other"]);
    let (asked, report) = finish(&file, both()).await;
    assert_eq!(asked, 40 + 15);
    assert_eq!(finish(&file, both()).await.0, 0);
    assert_eq!(timeless(&report), timeless(&finish(&whole, both()).await.1));
}

#[tokio::test]
async fn a_checkpoint_of_a_newer_version_is_refused_and_left_as_it_is() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("checkpoint.jsonl");
    finish(&file, plan(data(3), &["it"])).await;
    let ours = std::fs::read_to_string(&file).expect("the checkpoint");
    let plan_line = ours.lines().next().expect("a plan");
    let newer = |line: &str| line.replacen("{\"snakepit_eval\":1", "{\"snakepit_eval\":2", 1);
    // A finished checkpoint, one whose plan has other fields, and one that a newer version has continued.
    for text in [
        newer(&ours),
        "{\"snakepit_eval\":2,\"stages\":[]}\n".to_owned(),
        format!("{ours}{}\n", newer(plan_line)),
    ] {
        std::fs::write(&file, &text).expect("written");
        let plan = plan(data(3), &["it"]);
        for refused in [EvalJournal::create(&file, &plan), EvalJournal::resume(&file, &plan)] {
            let refused = refused.expect_err("a newer version");
            assert!(matches!(refused, EvalError::OtherFormat { found: 2, ours: 1, .. }), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("the checkpoint"), text);
    }
}

#[tokio::test]
async fn fewer_samples_or_other_ones_are_refused_and_the_checkpoint_stays_as_it_is() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("checkpoint.jsonl");
    finish(&file, plan(data(20), &["it"])).await;
    let fewer = EvalJournal::resume(&file, &plan(data(10), &["it"])).expect_err("fewer samples");
    assert!(fewer.to_string().contains("has 20 samples, and the given one has only 10"), "{fewer}");
    // The checkpoint grows beyond the plan.
    finish(&file, plan(data(25), &["it", "other"])).await;
    let text = std::fs::read(&file).expect("the checkpoint");
    let smaller = [
        (plan(data(20), &["it", "other"]), "the given one has only 20"),
        (plan(data(25), &["it"]), "other is missing"),
    ];
    for (smaller, words) in smaller {
        let refused = EvalJournal::resume(&file, &smaller).expect_err(words);
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let line =
        |n: i64| json!({ "id": format!("s{n}"), "input": n + i64::from(n == 3), "expected": 1 }).to_string();
    let other = Dataset::parse(&(0..30).map(line).collect::<Vec<_>>().join("\n")).expect("a data set");
    let other = EvalJournal::resume(&file, &plan(other, &["it"])).expect_err("another data set");
    assert!(other.to_string().contains("data set has 25 other samples"), "{other}");
    assert_eq!(std::fs::read(&file).expect("the checkpoint"), text);
}

#[test]
fn a_sample_without_what_is_expected_is_refused_by_an_evaluator_that_compares_with_it() {
    let text = "{\"input\": 1, \"expected\": null}\n{\"input\": 2}\n";
    let made = |evaluator: &str| {
        let evaluator = Evaluator::parse(evaluator).expect(evaluator);
        let dataset = Dataset::parse(text).expect("a data set");
        EvalPlan::new(dataset, evaluator, vec![Experiment::named("it")])
    };
    for evaluator in
        ["exact", "contains", "numeric", "regex", "path:$.a", "{\"all_of\": [\"exact\", \"regex:a\"]}"]
    {
        let refused = made(evaluator).expect_err(evaluator);
        assert!(matches!(refused, EvalError::Sample { line: 2, .. }), "{refused}");
        for words in ["line 2 of the data set: it has no \"expected\"", "null, if", "judge:COMMAND"] {
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }
    for evaluator in
        ["regex:a", "judge:grade", "python:judge.py:grade", "{\"any_of\": [\"exact\", \"regex:a\"]}"]
    {
        made(evaluator).expect(evaluator);
    }
}
