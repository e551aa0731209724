//! The texts of all errors of telemetry.

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::{TraceContext, TraceError};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_trace_contexts(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_trace_contexts(texts: &mut ErrorTexts) {
    let context =
        TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").expect("valid");
    every_variant!(texts, TraceError {
        Parent => [TraceContext::new("4bf92f3577b34da6").expect_err("too short")],
        State => [context.clone().with_state("no-key").expect_err("no key")],
    });
    for parent in [
        "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
    ] {
        texts.add("Parent", &TraceContext::new(parent).expect_err("no traceparent"));
    }
    for state in ["a=1\n", &"a=1,".repeat(33), &format!("a={}", "1".repeat(600))] {
        texts.add("State", &context.clone().with_state(state).expect_err("no tracestate"));
    }
}
