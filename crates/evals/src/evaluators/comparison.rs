//! The evaluators that compare the answer with the expected value.

use regex::Regex;
use serde_json::Value as Json;

use super::{Evaluator, Judgement};

impl Evaluator {
    /// Judges by comparison, without calling any other code.
    pub(super) fn compare(&self, expected: &Json, output: &Json) -> Result<Judgement, String> {
        Ok(match self {
            Self::Contains => Judgement::of(contains(expected, output)),
            Self::Numeric { absolute, relative } => {
                let Some(expected) = number(expected) else {
                    return Err(format!("the expected value {expected} is not a number"));
                };
                let Some(found) = number(output) else {
                    return Ok(Judgement::of(false).why("the answer is not a number"));
                };
                let off = (found - expected).abs();
                Judgement::of(off <= absolute.max(relative * expected.abs())).why(format!("off by {off}"))
            }
            Self::Regex(Some(pattern)) => Judgement::of(pattern.is_match(&text(output))),
            Self::Regex(None) => {
                let Json::String(pattern) = expected else {
                    return Err("the expected value must be a regular expression, as a text".into());
                };
                let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
                Judgement::of(pattern.is_match(&text(output)))
            }
            Self::Path(path) => match path.query(output).all()[..] {
                [] => Judgement::of(false).why(format!("{path} finds nothing")),
                [found] => Judgement::of(same(expected, found)),
                ref many => Judgement::of(same(expected, &many.iter().copied().cloned().collect())),
            },
            Self::Exact
            | Self::AllOf(_)
            | Self::AnyOf(_)
            | Self::Judge { .. }
            | Self::Python { .. }
            | Self::Function(_) => Judgement::of(same(expected, output)),
        })
    }
}

/// Compares values as people do: numbers by value, everything else as JSON.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        // Different large integers may be equal as floats.
        (Json::Number(one), Json::Number(other)) if !one.is_f64() && !other.is_f64() => one == other,
        (Json::Number(one), Json::Number(other)) => one.as_f64() == other.as_f64(),
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            let has = |(key, value): (&String, &Json)| other.get(key).is_some_and(|it| same(value, it));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

fn contains(expected: &Json, output: &Json) -> bool {
    match (expected, output) {
        (Json::Array(all), _) => all.iter().all(|one| contains(one, output)),
        (one, Json::Array(elements)) => elements.iter().any(|element| same(one, element)),
        (one, output) => text(output).contains(&text(one)),
    }
}

/// Returns the text of a value: a text itself, any other value as JSON.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Json) -> Option<f64> {
    let number = match value {
        Json::Number(number) => number.as_f64()?,
        Json::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "it keeps the cases readable")]
    fn passes(evaluator: &str, expected: Json, output: Json) -> bool {
        let evaluator = Evaluator::parse(evaluator).expect(evaluator);
        evaluator.compare(&expected, &output).expect("a judgement").passed
    }

    #[test]
    fn exact_compares_values_and_not_number_types() {
        assert!(passes("exact", json!("a"), json!("a")));
        assert!(!passes("exact", json!("a"), json!("a ")));
        assert!(passes("exact", json!({ "a": [4] }), json!({ "a": [4.0] })));
        assert!(!passes("exact", json!({ "a": 1 }), json!({ "a": 1, "b": 2 })));
        assert!(!passes("exact", json!(null), json!(false)));
        // Integers that are equal as floats must still differ.
        assert!(passes("exact", json!(u64::MAX), json!(u64::MAX)));
        assert!(!passes("exact", json!(u64::MAX), json!(u64::MAX - 1)));
        assert!(!passes("exact", json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)));
    }

    #[test]
    fn contains_looks_into_texts_and_lists() {
        assert!(passes("contains", json!("ell"), json!("hello")));
        assert!(passes("contains", json!(["he", "lo"]), json!("hello")));
        assert!(!passes("contains", json!(["he", "x"]), json!("hello")));
        assert!(passes("contains", json!(2), json!([1, 2.0])));
        assert!(passes("contains", json!(4), json!("it is 42")));
    }

    #[test]
    fn numeric_accepts_answers_within_its_tolerance() {
        assert!(passes("numeric", json!(0.3), json!(0.1 + 0.2)));
        assert!(passes("numeric:0.5", json!(10), json!(" 10.5 ")));
        assert!(!passes("numeric:0.5", json!(10), json!(10.6)));
        assert!(passes("numeric:1%", json!(-200), json!(-202)));
        assert!(!passes("numeric:1%", json!(-200), json!(-203)));
        assert!(!passes("numeric", json!(1), json!("one")));
        assert!(!passes("numeric", json!(1), json!("nan")));
        let numeric = Evaluator::parse("numeric").expect("an evaluator");
        assert!(
            numeric.compare(&json!("one"), &json!(1)).is_err_and(|reason| reason.contains("not a number"))
        );
    }

    #[test]
    fn patterns_are_given_once_or_by_each_sample() {
        assert!(passes("regex:^[a-c]+$", json!(null), json!("abc")));
        assert!(!passes("regex:^[a-c]+$", json!(null), json!("abd")));
        assert!(passes("regex", json!("(?i)paris"), json!("It is PARIS.")));
        let regex = Evaluator::parse("regex").expect("an evaluator");
        assert!(regex.compare(&json!("("), &json!("x")).is_err());
        assert!(regex.compare(&json!(1), &json!("x")).is_err());
    }

    #[test]
    fn a_path_selects_the_part_that_is_compared() {
        assert!(passes("path:$.answer.value", json!(4), json!({ "answer": { "value": 4.0 } })));
        assert!(!passes("path:$.answer", json!(4), json!({ "other": 4 })));
        assert!(passes("path:$.all[*].n", json!([1, 2]), json!({ "all": [{ "n": 1 }, { "n": 2 }] })));
    }
}
