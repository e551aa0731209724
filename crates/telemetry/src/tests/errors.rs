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
        State => [context.with_state("no-key").expect_err("no key")],
    });
}
