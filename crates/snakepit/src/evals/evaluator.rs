//! How an answer is judged.
//!
//! A wrong answer is a judgement; what keeps the evaluator from judging (an expected value that is no number, a judge that fails)
//! is an error, and is shown as one.

use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use regex::Regex;
use serde_json::Value as Json;
use serde_json_path::JsonPath;

use super::asking::{Asker, Trouble};
use super::{EvaluatorFunction, Sample, Stage};
use crate::{Pool, args};

/// Names of workers are bounded; a pool's name is a part of them.
const LONGEST_STEM: usize = 32;

/// A score of a judge that passes unless the judge says otherwise.
const PASSES: f64 = 0.5;

/// How an answer is judged. [`Evaluator::parse`] reads one from a text, [`Evaluator::from_json`] from a configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Evaluator {
    /// The answer is what is expected; 4 and 4.0 are the same number.
    Exact,
    /// The answer's text contains the text that is expected, or each of a list of texts; an answer that is a list has it as an
    /// element.
    Contains,
    /// The answer is a number, or the text of one, and near enough: `|answer - expected| ≤ max(absolute, relative × |expected|)`.
    Numeric {
        /// In the unit of the number.
        absolute: f64,
        /// As a part of what is expected.
        relative: f64,
    },
    /// The answer's text matches this pattern, or the pattern that is expected.
    Regex(Option<Regex>),
    /// What a JSONPath (RFC 9535) finds in the answer is what is expected; several finds are a list.
    Path(JsonPath),
    /// All of them pass; the score is the lowest.
    AllOf(Vec<Evaluator>),
    /// One of them passes; the score is the highest.
    AnyOf(Vec<Evaluator>),
    /// A command of a pool judges: it gets `input`, `output` and `expected`, and answers with a bool, a score from 0 to 1, or
    /// `{"score": …, "passed": …, "why": …}` (or `"reason"`). Unless it says so itself, 0.5 and above pass.
    Judge {
        /// The command.
        command: String,
        /// Its pool; the first one unless it is set.
        pool: Option<String>,
    },
    /// A function in Python judges, one that `@snakepit.evaluator` decorates: it gets those of `sample`, `input`, `output` and
    /// `expected` that it takes, and answers as a judge does.
    Python {
        /// The file that it is in, for which there is a pool of its own ([`Evaluator::pools`]); none if it is in the worker of the
        /// first pool.
        file: Option<PathBuf>,
        /// Its name.
        function: String,
    },
    /// A function of the host judges.
    Function(EvaluatorFunction),
}

/// What an evaluator says.
#[derive(Clone, PartialEq, Debug)]
pub struct Judgement {
    /// 0 to 1.
    pub score: f64,
    /// Whether that is good enough.
    pub passed: bool,
    /// Why, for a person.
    pub why: Option<String>,
}

impl Judgement {
    /// Passed with a score of 1, or failed with one of 0.
    pub fn of(passed: bool) -> Self {
        Self { score: f64::from(u8::from(passed)), passed, why: None }
    }

    /// A score from 0 to 1; 0.5 and above pass.
    pub fn scored(score: f64) -> Self {
        Self { score, passed: score >= PASSES, why: None }
    }

    /// Says why, for a person.
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    fn failed(why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::of(false) }
    }
}

impl Evaluator {
    pub(super) fn judge<'a>(
        &'a self,
        sample: &'a Sample,
        output: &'a Json,
        asker: &'a Asker,
    ) -> BoxFuture<'a, Result<Judgement, Trouble>> {
        async move {
            match self {
                Self::AllOf(all) => all_of(judged(all, sample, output, asker).await?),
                Self::AnyOf(any) => any_of(judged(any, sample, output, asker).await?),
                Self::Judge { command, pool } => {
                    let arguments =
                        || args! { input: &sample.input, output: output, expected: &sample.expected };
                    let answer = asker.ask_judge(command, pool.as_deref(), sample, arguments).await?;
                    said(&answer).map_err(|reason| Trouble::error(Stage::Judge, reason))
                }
                Self::Python { file, function } => {
                    let pool = file.as_deref().map(pool_name);
                    let arguments = || {
                        args! { sample: sample, input: &sample.input, output: output, expected: &sample.expected }
                    };
                    let answer = asker.ask_judge(function, pool.as_deref(), sample, arguments).await?;
                    said(&answer).map_err(|reason| Trouble::error(Stage::Judge, reason))
                }
                Self::Function(function) => function.judge(sample, output, asker.limit()).await,
                Self::Exact | Self::Contains | Self::Numeric { .. } | Self::Regex(_) | Self::Path(_) => {
                    self.look(&sample.expected, output).map_err(|reason| Trouble::error(Stage::Judge, reason))
                }
            }
        }
        .boxed()
    }

    /// Whether a judge of a pool is among them.
    pub fn asks_a_pool(&self) -> bool {
        match self {
            Self::Judge { .. } | Self::Python { .. } => true,
            Self::AllOf(parts) | Self::AnyOf(parts) => parts.iter().any(Self::asks_a_pool),
            Self::Exact
            | Self::Contains
            | Self::Numeric { .. }
            | Self::Regex(_)
            | Self::Path(_)
            | Self::Function(_) => false,
        }
    }

    /// Whether it can judge only samples that say what is expected.
    pub fn needs_expected(&self) -> bool {
        match self {
            Self::Exact | Self::Contains | Self::Numeric { .. } | Self::Regex(None) | Self::Path(_) => true,
            Self::Regex(Some(_)) | Self::Judge { .. } | Self::Python { .. } | Self::Function(_) => false,
            Self::AllOf(parts) => parts.iter().any(Self::needs_expected),
            // Another one may be able to.
            Self::AnyOf(parts) => parts.iter().all(Self::needs_expected),
        }
    }

    /// The files of Python that evaluators are in, each once.
    pub fn files(&self) -> Vec<&Path> {
        let mut files = match self {
            Self::Python { file: Some(file), .. } => vec![file.as_path()],
            Self::AllOf(parts) | Self::AnyOf(parts) => parts.iter().flat_map(Self::files).collect(),
            Self::Exact
            | Self::Contains
            | Self::Numeric { .. }
            | Self::Regex(_)
            | Self::Path(_)
            | Self::Judge { .. }
            | Self::Python { file: None, .. }
            | Self::Function(_) => Vec::new(),
        };
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The pools of those files, to be added to the engine that judges.
    pub fn pools(&self) -> Vec<Pool> {
        let pool = |file: &Path| Pool::python(file).name(pool_name(file)).for_evaluation();
        self.files().into_iter().map(pool).collect()
    }

    /// What needs nobody else.
    fn look(&self, expected: &Json, output: &Json) -> Result<Judgement, String> {
        Ok(match self {
            Self::Contains => Judgement::of(contains(expected, output)),
            Self::Numeric { absolute, relative } => {
                let Some(expected) = number(expected) else {
                    return Err(format!("{expected} is expected, which is no number"));
                };
                let Some(found) = number(output) else {
                    return Ok(Judgement::failed("the answer is no number"));
                };
                let off = (found - expected).abs();
                Judgement {
                    why: Some(format!("off by {off}")),
                    ..Judgement::of(off <= absolute.max(relative * expected.abs()))
                }
            }
            Self::Regex(Some(pattern)) => Judgement::of(pattern.is_match(&text(output))),
            Self::Regex(None) => {
                let Json::String(pattern) = expected else {
                    return Err("a regular expression must be expected, as a text".into());
                };
                let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
                Judgement::of(pattern.is_match(&text(output)))
            }
            Self::Path(path) => match path.query(output).all()[..] {
                [] => Judgement::failed(format!("{path} finds nothing")),
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

type Parts = Vec<Result<Judgement, Trouble>>;

/// What each of them says. Calls that cannot be made at all end the evaluation.
async fn judged(
    parts: &[Evaluator],
    sample: &Sample,
    output: &Json,
    asker: &Asker,
) -> Result<Parts, Trouble> {
    let mut judgements = Vec::with_capacity(parts.len());
    for part in parts {
        match part.judge(sample, output, asker).await {
            Err(trouble @ Trouble::Hopeless(_)) => return Err(trouble),
            judgement => judgements.push(judgement),
        }
    }
    Ok(judgements)
}

/// One that cannot judge leaves it open whether all pass.
fn all_of(parts: Parts) -> Result<Judgement, Trouble> {
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let score = parts.iter().map(|part| part.score).fold(1.0, f64::min);
    Ok(Judgement { score, passed: parts.iter().all(|part| part.passed), why: reasons(&parts) })
}

/// One that passes is enough, whatever keeps others from judging.
fn any_of(parts: Parts) -> Result<Judgement, Trouble> {
    let any_passed = parts.iter().flatten().any(|part| part.passed);
    let parts: Vec<Judgement> = if any_passed {
        parts.into_iter().flatten().collect()
    } else {
        parts.into_iter().collect::<Result<_, _>>()?
    };
    let score = parts.iter().map(|part| part.score).fold(0.0, f64::max);
    Ok(Judgement { score, passed: any_passed, why: reasons(&parts) })
}

fn reasons(parts: &[Judgement]) -> Option<String> {
    let reasons: Vec<&str> = parts.iter().filter_map(|part| part.why.as_deref()).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// What a judge says.
fn said(answer: &Json) -> Result<Judgement, String> {
    let scored = |number: &Json| match number.as_f64() {
        Some(score) if (0.0..=1.0).contains(&score) => Ok(score),
        _ => Err(format!("the judge answered {answer}: a score is 0 to 1")),
    };
    match answer {
        Json::Bool(passed) => Ok(Judgement::of(*passed)),
        Json::Number(_) => Ok(Judgement::scored(scored(answer)?)),
        Json::Object(object) => {
            let passed = object.get("passed").and_then(Json::as_bool);
            let score = match (object.get("score"), passed) {
                (Some(score), _) => scored(score)?,
                (None, Some(passed)) => f64::from(u8::from(passed)),
                (None, None) => return Err(format!("the judge answered {answer}, without a score")),
            };
            let why = object.get("why").or_else(|| object.get("reason"));
            let why = why.and_then(Json::as_str).map(str::to_owned);
            Ok(Judgement { score, passed: passed.unwrap_or(score >= PASSES), why })
        }
        _ => Err(format!("the judge answered {answer}: it must be a bool, a score, or an object with one")),
    }
}

/// The pool of a file that evaluators are in.
fn pool_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("evaluator-{}", stem.chars().map(plain).take(LONGEST_STEM).collect::<String>())
}

/// Equal as people see it: numbers by their value, the rest as JSON.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        // As floats, large integers that differ may be the same.
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

/// A text is itself, anything else its JSON.
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

    #[expect(clippy::needless_pass_by_value, reason = "the cases read better so")]
    fn passes(evaluator: &str, expected: Json, output: Json) -> bool {
        let evaluator = Evaluator::parse(evaluator).expect(evaluator);
        evaluator.look(&expected, &output).expect("a judgement").passed
    }

    #[test]
    fn exact_means_equal_as_people_see_it() {
        assert!(passes("exact", json!("a"), json!("a")));
        assert!(!passes("exact", json!("a"), json!("a ")));
        assert!(passes("exact", json!({ "a": [4] }), json!({ "a": [4.0] })));
        assert!(!passes("exact", json!({ "a": 1 }), json!({ "a": 1, "b": 2 })));
        assert!(!passes("exact", json!(null), json!(false)));
        // Neighbours that are the same as floats stay apart only where both are integers and differ.
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
    fn numbers_are_near_enough_or_not() {
        assert!(passes("numeric", json!(0.3), json!(0.1 + 0.2)));
        assert!(passes("numeric:0.5", json!(10), json!(" 10.5 ")));
        assert!(!passes("numeric:0.5", json!(10), json!(10.6)));
        assert!(passes("numeric:1%", json!(-200), json!(-202)));
        assert!(!passes("numeric:1%", json!(-200), json!(-203)));
        assert!(!passes("numeric", json!(1), json!("one")));
        assert!(!passes("numeric", json!(1), json!("nan")));
        let numeric = Evaluator::parse("numeric").expect("an evaluator");
        assert!(numeric.look(&json!("one"), &json!(1)).is_err_and(|reason| reason.contains("no number")));
    }

    #[test]
    fn patterns_are_given_once_or_by_each_sample() {
        assert!(passes("regex:^[a-c]+$", json!(null), json!("abc")));
        assert!(!passes("regex:^[a-c]+$", json!(null), json!("abd")));
        assert!(passes("regex", json!("(?i)paris"), json!("It is PARIS.")));
        let regex = Evaluator::parse("regex").expect("an evaluator");
        assert!(regex.look(&json!("("), &json!("x")).is_err());
        assert!(regex.look(&json!(1), &json!("x")).is_err());
    }

    #[test]
    fn a_path_picks_what_is_compared() {
        assert!(passes("path:$.answer.value", json!(4), json!({ "answer": { "value": 4.0 } })));
        assert!(!passes("path:$.answer", json!(4), json!({ "other": 4 })));
        assert!(passes("path:$.all[*].n", json!([1, 2]), json!({ "all": [{ "n": 1 }, { "n": 2 }] })));
    }

    #[test]
    fn a_judge_answers_with_a_bool_a_score_or_both() {
        let judgement = |answer| said(&answer).map(|it| (it.score, it.passed));
        assert_eq!(judgement(json!(true)), Ok((1.0, true)));
        assert_eq!(judgement(json!(0.4)), Ok((0.4, false)));
        assert_eq!(judgement(json!({ "score": 0.4, "passed": true, "why": "close" })), Ok((0.4, true)));
        assert_eq!(judgement(json!({ "passed": false })), Ok((0.0, false)));
        let reason = said(&json!({ "score": 1, "reason": "as asked" })).map(|it| it.why);
        assert_eq!(reason, Ok(Some("as asked".to_owned())));
        for wrong in [json!(1.5), json!(-1), json!("good"), json!({ "why": "?" }), json!(null)] {
            assert!(judgement(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_of_takes_the_lowest_and_any_of_the_highest() {
        let part = |score: f64| Ok(Judgement { score, passed: score >= 0.5, why: None });
        let open = || Err(Trouble::error(Stage::Judge, "broken"));
        let both = |judgement: Result<Judgement, Trouble>| judgement.ok().map(|it| (it.score, it.passed));
        assert_eq!(both(all_of(vec![part(0.9), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(all_of(vec![part(0.9), part(0.1)])), Some((0.1, false)));
        assert_eq!(both(all_of(vec![part(0.9), open()])), None);
        assert_eq!(both(any_of(vec![part(0.1), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(any_of(vec![open(), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(any_of(vec![open(), part(0.1)])), None);
    }
}
