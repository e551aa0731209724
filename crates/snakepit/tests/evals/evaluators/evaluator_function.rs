//! Evaluators that are functions of the host in Rust, or of files in Python.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use snakepit::Snakepit;
use snakepit::evals::{
    Dataset, EvalError, EvalJournal, EvalPlan, EvalReport, Evaluation, Evaluator, Experiment, Judgement,
    Responder, SampleOutcome, SampleStage,
};
use snakepit::loops::HandlerFailure;

use crate::support::{Pit, worker};

fn dataset(samples: &[Json]) -> Dataset {
    let lines: Vec<String> = samples.iter().map(Json::to_string).collect();
    Dataset::parse(&lines.join("\n")).expect("a data set")
}

fn samples(count: i64) -> Vec<Json> {
    (0..count)
        .map(|n| json!({ "id": format!("s{n}"), "input": n, "expected": 2 * n, "level": n % 2 }))
        .collect()
}

fn plan(samples: &[Json], evaluator: Evaluator) -> EvalPlan {
    EvalPlan::new(dataset(samples), evaluator, vec![Experiment::named("doubled")]).expect("a plan")
}

/// Returns a responder that doubles the input.
fn doubles() -> Responder {
    Responder::function(|request: snakepit::evals::EvalRequest| async move {
        let n = request
            .sample
            .input
            .as_i64()
            .ok_or_else(|| HandlerFailure::new("NoNumber", "it is no number"))?;
        Ok::<i64, HandlerFailure>(2 * n)
    })
}

async fn evaluate(plan: EvalPlan, responder: &Responder) -> (EvalReport, EvalJournal) {
    let mut journal = EvalJournal::in_memory();
    let evaluation = Evaluation::new(plan).concurrency(3);
    let report = evaluation.run_over(responder, &mut journal, |_| {}).await.expect("a report");
    (report, journal)
}

fn outcome(journal: &EvalJournal, sample: &str) -> SampleOutcome {
    journal.get("doubled", sample).expect("a record").outcome.clone()
}

#[tokio::test]
async fn a_closure_judges_with_a_bool_a_score_or_a_reason() {
    let is_even_level = Evaluator::function("even level", |sample, _| sample.rest["level"] == 0);
    let (report, _) = evaluate(plan(&samples(4), is_even_level), &doubles()).await;
    assert_eq!(report.experiments[0].counts.passed, 2);
    assert_eq!(report.evaluator, json!({ "function": "even level" }));

    let score = Evaluator::function("score", |_, answer| answer.as_f64().unwrap_or(9.0) / 8.0);
    let (report, _) = evaluate(plan(&samples(4), score), &doubles()).await;
    assert_eq!(report.experiments[0].mean_score, Some(0.375));

    let reason = Evaluator::function("reason", |sample, answer| {
        Judgement::of(sample.expected == *answer).why(format!("{answer} for {}", sample.input))
    });
    let (_, journal) = evaluate(plan(&samples(2), reason), &doubles()).await;
    let why = Some("2 for 1".to_owned());
    assert_eq!(outcome(&journal, "s1"), SampleOutcome::Scored { score: 1.0, passed: true, why });
}

#[tokio::test]
async fn an_async_function_judges_beside_other_evaluators() {
    let later = Evaluator::async_function("later", |sample, answer| async move {
        tokio::task::yield_now().await;
        if answer == sample.expected { Ok(0.75) } else { Err("they differ") }
    });
    let both = Evaluator::AllOf(vec![Evaluator::Exact, later]);
    let (report, _) = evaluate(plan(&samples(3), both), &doubles()).await;
    assert_eq!((report.experiments[0].counts.passed, report.experiments[0].mean_score), (3, Some(0.75)));
}

#[tokio::test]
async fn errors_of_an_evaluator_are_told_apart_from_errors_of_the_answer() {
    let fragile = Evaluator::async_function("fragile", |sample, _| async move {
        match sample.id.as_str() {
            "s0" => panic!("I cannot judge"),
            "s1" => Err("no model".to_owned()),
            "s2" => Ok(1.5),
            "s3" => std::future::pending().await,
            _ => Ok(1.0),
        }
    });
    let mut samples = samples(6);
    samples[4]["input"] = json!("four");
    let plan = plan(&samples, fragile).timeout(Duration::from_millis(300));
    let (report, journal) = evaluate(plan, &doubles()).await;
    let unscored: Vec<(Option<SampleStage>, &str)> =
        report.experiments[0].unscored.iter().map(|it| (it.stage, it.message.as_str())).collect();
    assert_eq!(
        unscored,
        [
            (Some(SampleStage::Judge), "fragile panicked: I cannot judge"),
            (Some(SampleStage::Judge), "fragile: no model"),
            (Some(SampleStage::Judge), "fragile: it gave the score 1.5: a score is 0 to 1"),
            (Some(SampleStage::Judge), "fragile did not judge within 300ms"),
            (Some(SampleStage::Answer), "NoNumber: it is no number"),
        ]
    );
    // The answer is recorded, judged or not.
    assert_eq!(journal.get("doubled", "s1").and_then(|it| it.output.clone()), Some(json!(2)));
    assert!(journal.get("doubled", "s5").is_some_and(snakepit::evals::SampleRecord::passed));
}

#[tokio::test]
async fn a_checkpoint_knows_a_function_by_its_name() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("checkpoint.jsonl");
    let named = |name: &str| plan(&samples(2), Evaluator::function(name, |_, _| true));
    let mut journal = EvalJournal::create(&file, &named("one")).expect("a journal");
    let evaluation = Evaluation::new(named("one"));
    evaluation.run_over(&doubles(), &mut journal, |_| {}).await.expect("a report");
    drop(journal);
    assert_eq!(EvalJournal::resume(&file, &named("one")).expect("the same").found().records, 2);
    let other = EvalJournal::resume(&file, &named("another")).expect_err("another way to judge");
    assert!(matches!(other, EvalError::OtherCheckpoint { .. }), "{other}");
}

#[tokio::test]
async fn an_evaluator_that_needs_a_pool_is_rejected_without_one() {
    for evaluator in ["judge:grade", "{\"any_of\": [\"exact\", \"python:judge.py:grade\"]}"] {
        let plan = plan(&samples(1), Evaluator::parse(evaluator).expect("an evaluator"));
        let ended = Evaluation::new(plan).run_over(&doubles(), &mut EvalJournal::in_memory(), |_| {}).await;
        let error = ended.expect_err("there is no pool").to_string();
        assert!(error.contains("Responder::judges"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_python_judges_in_a_pool_of_its_own() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/evals_judge.py");
    let parse = |function: &str| {
        Evaluator::parse(&format!("python:{}:{function}", file.display())).expect("an evaluator")
    };
    let both = Evaluator::AllOf(vec![parse("by_level"), parse("polite")]);
    assert_eq!((both.files().len(), both.pools().len()), (1, 1));
    let mut builder = Snakepit::builder().pool(worker("evals.py").workers(1));
    for pool in both.pools() {
        builder = builder.pool(pool.workers(1));
    }
    let pit = Pit::build(builder).await;
    let mut samples = samples(5);
    samples[2]["level"] = json!("broken");
    samples[4]["level"] = json!("deadly");
    let experiments = vec![Experiment::new("doubled", "double")];
    let plan = EvalPlan::new(dataset(&samples), both, experiments).expect("a plan");
    let mut journal = EvalJournal::in_memory();
    let report = Evaluation::new(plan).run(&pit, &mut journal, |_| {}).await.expect("a report");
    let why = Some("level 1 is hard".to_owned());
    assert_eq!(outcome(&journal, "s1"), SampleOutcome::Scored { score: 0.25, passed: false, why });
    assert!(journal.get("doubled", "s0").is_some_and(snakepit::evals::SampleRecord::passed));
    let unscored: Vec<(Option<SampleStage>, &str)> =
        report.experiments[0].unscored.iter().map(|it| (it.stage, it.message.as_str())).collect();
    assert_eq!(
        unscored,
        [
            (Some(SampleStage::Judge), "KeyError: 'broken'"),
            (Some(SampleStage::Judge), "the worker of by_level exited with status 4"),
        ]
    );
    // A function of the worker itself.
    let own = Evaluator::parse("python:is_whole").expect("an evaluator");
    let plan =
        EvalPlan::new(dataset(&samples), own, vec![Experiment::new("doubled", "double")]).expect("a plan");
    let report =
        Evaluation::new(plan).run(&pit, &mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    assert_eq!(report.experiments[0].counts.passed, 5);
}
