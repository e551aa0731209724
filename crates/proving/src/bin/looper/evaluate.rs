//! An evaluation that resumes from its checkpoint and prints its report at the end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use snakepit::Snakepit;
use snakepit::evals::{
    Dataset, EvalJournal, EvalLoop, EvalPlan, EvalReport, Evaluation, Evaluator, Experiment, RemoteEvaluation,
};
use snakepit::loops::{LoopScope, RunOptions};
use snakepit::mailbox::{Mailbox, SqliteMailbox};
use snakepit_proving::mailbox_faults::traced_mailbox::tell;

use super::at_once;

const SAMPLES: i64 = 10;
const PATIENCE: Duration = Duration::from_secs(20);
/// Short, so that messages that a killed process held return soon.
const LEASE: Duration = Duration::from_millis(300);

fn evaluator() -> Evaluator {
    Evaluator::parse(r#"{"any_of": ["exact", "judge:grade"]}"#).expect("an evaluator")
}

/// Returns a plan with right answers, wrong answers, an exception, and the death of a worker.
fn plan() -> EvalPlan {
    let sample = |n: i64| {
        let input = match n {
            2 => json!("raise"),
            5 => json!("die"),
            n => json!(n),
        };
        json!({ "id": format!("s{n}"), "input": input, "expected": 2 * n + i64::from(n == 7) }).to_string()
    };
    let samples: Vec<String> = (0..SAMPLES).map(sample).collect();
    let dataset = Dataset::parse(&samples.join("\n")).expect("a data set");
    let experiments = vec![Experiment::new("double", "double"), Experiment::new("worse", "worse")];
    EvalPlan::new(dataset, evaluator(), experiments).expect("a plan")
}

async fn pit(worker: &str) -> Snakepit {
    let pool = snakepit::python(worker).workers(2).restarts(at_once());
    Snakepit::builder().pool(pool).start().await.unwrap_or_else(|error| panic!("{error}"))
}

fn journal(checkpoint: &str) -> EvalJournal {
    EvalJournal::resume(checkpoint, &plan()).unwrap_or_else(|error| panic!("{error}"))
}

fn tell_report(report: &EvalReport) {
    let report: Json = serde_json::to_value(report).expect("JSON");
    tell(&report.to_string());
}

/// Evaluates by asking a pool.
pub(super) async fn directly(checkpoint: &str, worker: &str) {
    let mut journal = journal(checkpoint);
    let pit = pit(worker).await;
    let evaluation = Evaluation::new(plan()).concurrency(2);
    let report = evaluation.run(&pit, &mut journal, |_| {}).await.unwrap_or_else(|error| panic!("{error}"));
    tell_report(&report);
    pit.stop().await;
}

/// Evaluates by sending messages to a loop, which asks a pool and replies.
pub(super) async fn by_letters(file: &str, checkpoint: &str, worker: &str) {
    let open = |queue: &str| -> Arc<dyn Mailbox> {
        Arc::new(SqliteMailbox::open_named(file, queue).unwrap_or_else(|error| panic!("{error}")))
    };
    let (samples, results) = (open("samples"), open("results"));
    let mut journal = journal(checkpoint);
    let pit = pit(worker).await;
    let evals = EvalLoop::new("evals", Arc::clone(&samples), &pit, evaluator()).concurrency(2);
    let scope = LoopScope::start(Arc::new(evals), RunOptions::new().visibility_timeout(LEASE));
    let correspondence = RemoteEvaluation::new(plan(), samples, results).patience(PATIENCE);
    let report = correspondence.run(&mut journal, |_| {}).await.unwrap_or_else(|error| panic!("{error}"));
    tell_report(&report);
    assert!(scope.end(PATIENCE).await, "the loop has not ended");
    pit.stop().await;
}
