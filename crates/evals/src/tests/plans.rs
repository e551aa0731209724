//! The errors of plans and checkpoints that do not fit each other.

use snakepit_error_texts::ErrorTexts;

use crate::{Dataset, EvalJournal, EvalPlan, Evaluator, Experiment, SampleOutcome, SampleRecord};

fn plan(data: &str, evaluator: &str, experiments: &[&str]) -> Result<EvalPlan, crate::EvalError> {
    let evaluator = Evaluator::parse(evaluator).expect("an evaluator");
    let experiments = experiments.iter().map(|name| Experiment::new(*name, "answer")).collect();
    EvalPlan::new(Dataset::parse(data).expect("a data set"), evaluator, experiments)
}

const DATA: &str = "{\"input\": 1, \"expected\": 1}\n{\"input\": 2, \"expected\": 2}";

#[test]
fn every_plan_that_cannot_be_is_refused_with_the_way_out() {
    let mut texts = ErrorTexts::new();
    for (data, experiments) in
        [(DATA, &[][..]), (DATA, &[""]), (DATA, &["a", "a"]), ("{\"input\": 1}", &["a"])]
    {
        texts.add("", &plan(data, "exact", experiments).expect_err("no plan"));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn every_checkpoint_that_cannot_be_continued_is_refused_with_the_way_out() {
    let mut texts = ErrorTexts::new();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run.eval.jsonl");
    let ours = plan(DATA, "exact", &["a"]).expect("a plan");
    drop(EvalJournal::create(&path, &ours).expect("a journal"));
    let head = std::fs::read_to_string(&path).expect("the checkpoint");
    let mut refused = |text: &str, plan: &EvalPlan| {
        std::fs::write(&path, text).expect("a file");
        let error = EvalJournal::resume(&path, plan).map(drop).expect_err("refused").to_string();
        texts.add_text("", &error.replace(&dir.path().display().to_string(), "~"));
    };
    let (fewer, other) = (
        "{\"input\": 1, \"expected\": 1}",
        "{\"input\": 3, \"expected\": 1}\n{\"input\": 2, \"expected\": 2}",
    );
    refused("a diary\n", &ours);
    refused("a diary", &ours);
    refused(&head.replacen("\"snakepit_eval\":1", "\"snakepit_eval\":99", 1), &ours);
    refused(&head, &plan(fewer, "exact", &["a"]).expect("a plan"));
    refused(&head, &plan(other, "exact", &["a"]).expect("a plan"));
    refused(&head, &plan(DATA, "contains", &["a"]).expect("a plan"));
    refused(&head, &plan(DATA, "exact", &["b"]).expect("a plan"));
    let changed = vec![Experiment::new("a", "other")];
    let evaluator = Evaluator::parse("exact").expect("an evaluator");
    let changed = EvalPlan::new(Dataset::parse(DATA).expect("a data set"), evaluator, changed);
    refused(&head, &changed.expect("a plan"));
    refused(&format!("{head}x\n"), &ours);
    let outcome = SampleOutcome::Scored { score: 1.0, passed: true, why: None };
    let stranger = serde_json::to_string(&SampleRecord::new("a", "9", outcome)).expect("JSON");
    refused(&format!("{head}{stranger}\n"), &ours);
    insta::assert_snapshot!(texts);
}
