//! Samples that kill their workers: each death is the result of its sample, under any pool policy.

use std::time::Duration;

use serde_json::json;
use snakepit::evals::{
    Dataset, EvalError, EvalJournal, EvalPlan, EvalReport, Evaluation, Evaluator, Experiment,
};
use snakepit::policy::Restarts;
use snakepit::pool::PoolHealth;
use snakepit::{CallError, PoolOptions};

use crate::support::{Pit, SOON, worker};

const DIED: &str = "the worker of deadly exited with status 3";

/// Returns a plan of so many samples, of which every one is deadly whose number is a multiple of the divisor.
fn plan(samples: i64, divisor: i64) -> EvalPlan {
    let line = |n: i64| json!({ "id": format!("s{n}"), "input": { "n": n }, "expected": n }).to_string();
    let lines: Vec<String> = (0..samples).map(line).collect();
    let dataset = Dataset::parse(&lines.join("\n")).expect("a data set");
    let experiment = Experiment::new("it", "deadly").argument("divisor", divisor);
    EvalPlan::new(dataset, Evaluator::Exact, vec![experiment]).expect("a plan")
}

fn pool() -> PoolOptions {
    worker("evals.py").workers(1)
}

async fn evaluate(pit: &Pit, plan: EvalPlan) -> EvalReport {
    let evaluation = Evaluation::new(plan).concurrency(2);
    evaluation.run(pit, &mut EvalJournal::in_memory(), |_| {}).await.expect("a report")
}

fn assert_deaths(report: &EvalReport, passed: usize, died: usize) {
    let summary = &report.experiments[0];
    assert_eq!((summary.counts.passed, summary.counts.errors), (passed, died), "{:?}", summary.unscored);
    assert!(summary.unscored.iter().all(|it| it.message == DIED), "{:?}", summary.unscored);
    assert!(report.complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_for_evaluation_is_never_degraded_by_deaths() {
    let pit = Pit::start(pool().for_evaluation()).await;
    assert_deaths(&evaluate(&pit, plan(20, 1)).await, 0, 20);
    let health = pit.pools()[0].status().await.health;
    assert!(!matches!(health, PoolHealth::Degraded { .. }), "{health:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_degraded_by_samples_is_waited_for() {
    let strict = Restarts::default().failures(1).longest_pause(Duration::from_millis(300));
    let pit = Pit::start(pool().restarts(strict)).await;
    // A sample waits for a worker for a tenth of this time, which is shorter than any of the pauses.
    let report = evaluate(&pit, plan(9, 2).timeout(Duration::from_secs(2))).await;
    assert_deaths(&report, 4, 5);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_workers_ends_the_evaluation_at_once() {
    let pit = Pit::start(pool().for_evaluation()).await;
    pit.pools()[0].scale(0);
    pit.pools()[0].await_ready(SOON).await.expect("it has none");
    let plan = plan(3, 2);
    let mut journal = EvalJournal::in_memory();
    let ended = Evaluation::new(plan).run(&pit, &mut journal, |_| {}).await.expect_err("nobody is there");
    let EvalError::Call { source, .. } = &ended else { panic!("{ended}") };
    assert!(matches!(**source, CallError::NoWorkers { .. }), "{source}");
    assert!(journal.records().is_empty(), "{:?}", journal.records());
    pit.end().await;
}
