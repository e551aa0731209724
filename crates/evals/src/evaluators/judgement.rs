//! The verdict of an evaluator on an answer.

use std::fmt;

use serde_json::Value as Json;

/// The lowest score that passes, unless the judge sets `passed`.
const PASSING_SCORE: f64 = 0.5;

/// The verdict of an evaluator on an answer.
///
/// ```
/// use snakepit::evals::{Evaluator, Judgement};
///
/// let short = Evaluator::function("short", |_, answer| {
///     let words = answer.as_str().unwrap_or_default().split_whitespace().count();
///     Judgement::of(words <= 20).why(format!("{words} words"))
/// });
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Judgement {
    /// The score, from 0 to 1.
    pub score: f64,
    /// Whether the score is good enough.
    pub passed: bool,
    /// The reason, as text.
    pub why: Option<String>,
}

impl Judgement {
    /// Returns a judgement that passes with a score of 1 or fails with a score of 0.
    pub fn of(passed: bool) -> Self {
        Self { score: f64::from(u8::from(passed)), passed, why: None }
    }

    /// Returns a judgement with this score from 0 to 1. Scores of 0.5 and above pass.
    pub fn scored(score: f64) -> Self {
        Self { score, passed: score >= PASSING_SCORE, why: None }
    }

    /// Adds a reason.
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Reads the answer of a judge: a bool, a score, or an object with one of them and a reason.
    pub(super) fn from_json(answer: &Json) -> Result<Self, String> {
        let in_range = |number: &Json| match number.as_f64() {
            Some(score) if (0.0..=1.0).contains(&score) => Ok(score),
            _ => Err(format!("the judge answered {answer}: a score is 0 to 1")),
        };
        match answer {
            Json::Bool(passed) => Ok(Self::of(*passed)),
            Json::Number(_) => Ok(Self::scored(in_range(answer)?)),
            Json::Object(object) => {
                let passed = object.get("passed").and_then(Json::as_bool);
                let mut judgement = match (object.get("score"), passed) {
                    (Some(score), _) => Self::scored(in_range(score)?),
                    (None, Some(passed)) => Self::of(passed),
                    (None, None) => return Err(format!("the judge answered {answer}, without a score")),
                };
                judgement.passed = passed.unwrap_or(judgement.passed);
                let why = object.get("why").or_else(|| object.get("reason"));
                judgement.why = why.and_then(Json::as_str).map(str::to_owned);
                Ok(judgement)
            }
            _ => {
                Err(format!("the judge answered {answer}: it must be a bool, a score, or an object with one"))
            }
        }
    }
}

/// A type that a function may return as its judgement: a bool, a score from 0 to 1, a [`Judgement`], or a `Result` of
/// one of them.
pub trait IntoJudgement {
    /// Converts the value to a judgement, or returns why there is none.
    fn into_judgement(self) -> Result<Judgement, String>;
}

impl IntoJudgement for Judgement {
    fn into_judgement(self) -> Result<Judgement, String> {
        if (0.0..=1.0).contains(&self.score) {
            Ok(self)
        } else {
            Err(format!("it gave the score {}: a score is 0 to 1", self.score))
        }
    }
}

impl IntoJudgement for bool {
    fn into_judgement(self) -> Result<Judgement, String> {
        Ok(Judgement::of(self))
    }
}

impl IntoJudgement for f64 {
    fn into_judgement(self) -> Result<Judgement, String> {
        Judgement::scored(self).into_judgement()
    }
}

impl<T: IntoJudgement, E: fmt::Display> IntoJudgement for Result<T, E> {
    fn into_judgement(self) -> Result<Judgement, String> {
        self.map_err(|error| error.to_string())?.into_judgement()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_judge_answers_with_a_bool_a_score_or_both() {
        let judgement = |answer| Judgement::from_json(&answer).map(|it| (it.score, it.passed));
        assert_eq!(judgement(json!(true)), Ok((1.0, true)));
        assert_eq!(judgement(json!(0.4)), Ok((0.4, false)));
        assert_eq!(judgement(json!({ "score": 0.4, "passed": true, "why": "close" })), Ok((0.4, true)));
        assert_eq!(judgement(json!({ "passed": false })), Ok((0.0, false)));
        let reason = Judgement::from_json(&json!({ "score": 1, "reason": "as asked" })).map(|it| it.why);
        assert_eq!(reason, Ok(Some("as asked".to_owned())));
        for wrong in [json!(1.5), json!(-1), json!("good"), json!({ "why": "?" }), json!(null)] {
            assert!(judgement(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
