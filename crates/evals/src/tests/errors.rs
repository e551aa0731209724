//! The texts of all errors of evaluations.

use std::io;
use std::path::Path;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::mailbox::MailboxError;
use crate::{CallError, Dataset, EvalError, Evaluator};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_evaluations(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_evaluations(texts: &mut ErrorTexts) {
    every_variant!(texts, EvalError {
        File => [EvalError::file("read", Path::new("data.jsonl"), io::Error::from_raw_os_error(2))],
        Sample => [Dataset::parse("{\"input\": 1}\nx\n").expect_err("no sample")],
        Empty => [EvalError::Empty],
        Evaluator => [Evaluator::parse("exactly").expect_err("no evaluator")],
        Experiment => [EvalError::Experiment {
            name: "baseline".into(),
            reason: "two experiments have this name: rename one of them".into(),
        }],
        OtherCheckpoint => [EvalError::OtherCheckpoint {
            path: "run.eval.jsonl".into(),
            reason: "its data set has other samples".into(),
        }],
        OtherFormat => [EvalError::OtherFormat { path: "run.eval.jsonl".into(), found: 2, ours: 1 }],
        Unfinished => [EvalError::Unfinished { path: "run.eval.jsonl".into(), done: 40, all: 100 }],
        Corrupt => [EvalError::Corrupt {
            path: "run.eval.jsonl".into(),
            line: 7,
            reason: "expected value at line 1 column 1".into(),
        }],
        Locked => [EvalError::Locked { path: "run.eval.jsonl".into() }],
        Call => [EvalError::Call { experiment: "baseline".into(), source: Box::new(CallError::Stopped) }],
        Mailbox => [EvalError::Mailbox(MailboxError::Closed("samples".into()))],
    });
}
