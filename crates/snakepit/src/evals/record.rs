//! What came of one sample in one experiment.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What came of one sample in one experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// The sample's id.
    pub sample: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the command answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// How long the call took, in milliseconds; without the judge, and without the wait for a worker but for a short one.
    pub latency_ms: f64,
    /// What the answer cost, if the command told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// How a sample ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// It was answered, and the answer was judged.
    Scored {
        /// 0 to 1.
        score: f64,
        /// Whether that is good enough.
        passed: bool,
        /// What the evaluator has to say about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// It was not answered, or not judged.
    Error {
        /// Where it went wrong.
        stage: Stage,
        /// Why.
        message: String,
    },
    /// There was no answer, or no judgement, in time.
    TimedOut {
        /// Who was too slow.
        stage: Stage,
        /// Why.
        message: String,
    },
}

/// Who did not do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The command that is evaluated.
    Answer,
    /// The evaluator.
    Judge,
    /// The mailbox between: the message was given up.
    Delivery,
}

/// What an answer cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
}

impl Record {
    /// The score; what has none counts as 0.
    pub fn score(&self) -> f64 {
        match self.outcome {
            Outcome::Scored { score, .. } => score,
            Outcome::Error { .. } | Outcome::TimedOut { .. } => 0.0,
        }
    }

    /// Whether it passed; what was not judged did not.
    pub fn passed(&self) -> bool {
        matches!(self.outcome, Outcome::Scored { passed: true, .. })
    }

    /// Whose it is: one record for each.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.experiment, &self.sample)
    }
}

/// Takes the tokens out of an answer: `{"output": …, "tokens": {"input": 10, "output": 20}}`, with just these two keys. Any
/// other answer is taken as it is.
pub(super) fn opened(answer: Json) -> (Json, Option<Tokens>) {
    if let Json::Object(object) = &answer {
        let tokens = object.get("tokens").and_then(|it| serde_json::from_value(it.clone()).ok());
        if let (2, Some(output), Some(tokens)) = (object.len(), object.get("output"), tokens) {
            return (output.clone(), Some(tokens));
        }
    }
    (answer, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_taken_out_only_of_an_answer_that_is_meant_so() {
        let meant = json!({ "output": "x", "tokens": { "input": 3, "output": 4 } });
        assert_eq!(opened(meant), (json!("x"), Some(Tokens { input: 3, output: 4 })));
        for other in [
            json!({ "output": "x" }),
            json!({ "output": "x", "tokens": "many" }),
            json!({ "output": "x", "tokens": {}, "more": 1 }),
            json!([1]),
        ] {
            assert_eq!(opened(other.clone()), (other, None));
        }
    }
}
