//! The result of one sample in one experiment.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The result of one sample in one experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SampleRecord {
    /// The name of the experiment.
    pub experiment: String,
    /// The id of the sample.
    pub sample: String,
    /// How the sample ended.
    pub outcome: SampleOutcome,
    /// The answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// How long the answer took, in milliseconds, without the judge. Includes only a short wait for a worker.
    pub latency_ms: f64,
    /// What the answer cost, if the command reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// How a sample ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SampleOutcome {
    /// The sample was answered and the answer was judged.
    Scored {
        /// The score, from 0 to 1.
        score: f64,
        /// Whether the score is good enough.
        passed: bool,
        /// The evaluator's reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The sample was not answered, or its answer was not judged.
    Error {
        /// Which step failed.
        stage: SampleStage,
        /// The reason.
        message: String,
    },
    /// There was no answer or no judgement in time.
    TimedOut {
        /// Which step was too slow.
        stage: SampleStage,
        /// The reason.
        message: String,
    },
}

/// A step from a sample to its score, which may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleStage {
    /// The command that is evaluated.
    Answer,
    /// The evaluator.
    Judge,
    /// The mailbox in between, which gave up the message.
    Delivery,
}

/// What an answer cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// The number of tokens that were read.
    pub input: u64,
    /// The number of tokens that were written.
    pub output: u64,
}

impl SampleRecord {
    /// Returns a record without an answer.
    pub(crate) fn new(experiment: &str, sample: &str, outcome: SampleOutcome) -> Self {
        let (experiment, sample) = (experiment.to_owned(), sample.to_owned());
        Self { experiment, sample, outcome, output: None, latency_ms: 0.0, tokens: None }
    }

    /// Reports whether the sample was judged.
    pub(super) fn is_scored(&self) -> bool {
        matches!(self.outcome, SampleOutcome::Scored { .. })
    }

    /// Returns the score, or 0 if there is none.
    pub fn score(&self) -> f64 {
        match self.outcome {
            SampleOutcome::Scored { score, .. } => score,
            SampleOutcome::Error { .. } | SampleOutcome::TimedOut { .. } => 0.0,
        }
    }

    /// Reports whether the sample passed. A sample that was not judged did not pass.
    pub fn passed(&self) -> bool {
        matches!(self.outcome, SampleOutcome::Scored { passed: true, .. })
    }
}

/// Takes the tokens out of an answer of the form `{"output": …, "tokens": {"input": 10, "output": 20}}` that has only
/// these two keys. Returns any other answer unchanged.
pub(crate) fn opened(answer: Json) -> (Json, Option<Tokens>) {
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
    fn tokens_are_taken_only_out_of_an_answer_with_just_these_keys() {
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
