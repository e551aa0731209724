//! The samples of an evaluation: one JSON object per line.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::sample_json;
use crate::EvalError;

/// One question and, optionally, its expected answer.
///
/// ```
/// use snakepit::evals::Dataset;
///
/// let line = r#"{"id": "one", "input": {"a": 1, "b": 2}, "expected": 3, "topic": "sums"}"#;
/// let dataset = Dataset::parse(line)?;
/// let sample = &dataset.samples()[0];
/// assert_eq!(sample.input["b"], 2);
/// assert_eq!(sample.rest["topic"], "sums");
/// # Ok::<(), snakepit::evals::EvalError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The unique name of the sample. The default is the number of its line.
    pub id: String,
    /// The input of the command. An object holds arguments by name; any other value is the only argument.
    pub input: Json,
    /// The expected answer.
    #[serde(default)]
    pub expected: Json,
    /// All other keys of the line.
    #[serde(flatten)]
    pub rest: Map<String, Json>,
}

impl Sample {
    /// Creates a sample without an expected answer.
    pub fn new(id: impl Into<String>, input: Json) -> Self {
        Self { id: id.into(), input, expected: Json::Null, rest: Map::new() }
    }

    /// Sets the expected answer.
    pub fn expected(mut self, expected: Json) -> Self {
        self.expected = expected;
        self
    }
}

/// The samples of an evaluation, in the order of their lines.
///
/// ```
/// use snakepit::evals::Dataset;
///
/// let dataset = Dataset::parse(
///     r#"{"id": "one", "input": {"a": 1, "b": 2}, "expected": 3}
///        {"id": "two", "input": {"a": 2, "b": 2}, "expected": 4}"#,
/// )?;
/// assert_eq!(dataset.samples()[1].expected, 4);
/// # Ok::<(), snakepit::evals::EvalError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Dataset {
    samples: Vec<Sample>,
    /// The index and the line of the first sample without an expected value.
    without_expected: Option<(usize, usize)>,
    fingerprint: String,
}

impl Dataset {
    /// Reads a file of JSON lines.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, EvalError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| EvalError::file("read", path, error))?;
        Self::parse(sample_json::text(&bytes)?)
    }

    /// Reads JSON lines. Skips empty lines and a byte order mark.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let mut samples = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut without_expected = None;
        for (line, content) in lines {
            let (sample, has_expected) =
                sample_json::sample(line, content).map_err(|reason| EvalError::Sample { line, reason })?;
            if !has_expected {
                without_expected.get_or_insert((samples.len(), line));
            }
            if let Some(first) = known.insert(sample.id.clone(), line) {
                let reason =
                    format!("line {first} has the same id {:?}: give each sample its own", sample.id);
                return Err(EvalError::Sample { line, reason });
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            return Err(EvalError::Empty);
        }
        let fingerprint = fingerprint(&samples);
        Ok(Self { samples, without_expected, fingerprint })
    }

    /// Keeps only the first `samples` samples, but at least one.
    pub fn first(mut self, samples: usize) -> Self {
        self.samples.truncate(samples.max(1));
        self.without_expected = self.without_expected.filter(|(place, _)| *place < self.samples.len());
        self.fingerprint = fingerprint(&self.samples);
        self
    }

    /// Returns the samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the fingerprint that identifies the data set in a checkpoint.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the fingerprint of the first `samples` samples, if there are that many.
    pub(crate) fn fingerprint_of_first(&self, samples: usize) -> Option<String> {
        self.samples.get(..samples).map(fingerprint)
    }

    /// Returns the line of the first sample without an expected value.
    pub(super) fn line_without_expected(&self) -> Option<usize> {
        self.without_expected.map(|(_, line)| line)
    }
}

/// Returns the FNV-1a hash of the samples, independent of their formatting. It protects against mistakes, not against
/// malice. Checkpoints contain it, so it must never change. The hashers of std and of other crates do not promise that.
fn fingerprint(samples: &[Sample]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for sample in samples {
        let text = serde_json::to_string(sample).unwrap_or_default();
        for byte in text.bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use snakepit_error_texts::ErrorTexts;

    use super::*;

    #[test]
    fn samples_keep_everything_in_their_lines() {
        let data = Dataset::parse(
            "{\"id\": \"a\", \"input\": {\"n\": 1}, \"expected\": 2, \"tag\": \"hard\"}\n\n{\"id\": 7, \"input\": \"x\"}\n{\"input\": 0}",
        )
        .expect("a data set");
        let ids: Vec<&str> = data.samples().iter().map(|sample| sample.id.as_str()).collect();
        assert_eq!(ids, ["a", "7", "4"]);
        assert_eq!(data.samples()[0].rest["tag"], "hard");
        assert_eq!(data.samples()[1].expected, Json::Null);
        let again: Sample = serde_json::from_str(&serde_json::to_string(&data.samples()[0]).expect("JSON"))
            .expect("a sample");
        assert_eq!(again, data.samples()[0]);
    }

    #[test]
    fn a_line_that_is_no_sample_is_rejected_with_its_number() {
        let mut texts = ErrorTexts::new();
        for text in [
            "\n",
            "{\"input\": 1}\n[1]",
            "{\"id\": \"a\"}",
            "{\"id\": [], \"input\": 1}",
            "{\"id\": 1, \"input\": 1}\n\n{\"id\": \"1\", \"input\": 2}",
            "{\"input\": ",
            "{\"input\": 1}\n{\"input\": [NaN]}",
            "{\"input\": -Infinity}",
            "{\"input\": 18446744073709551616}",
        ] {
            texts.add(&text.escape_debug().to_string(), &Dataset::parse(text).expect_err(text));
        }
        insta::assert_snapshot!(texts);
    }

    #[test]
    fn words_within_texts_and_large_numbers_that_fit_are_accepted() {
        let data = Dataset::parse(
            "\u{feff}{\"input\": \"NaN \\\" 99999999999999999999\", \"expected\": 18446744073709551615}\r\n\
             {\"input\": 1e300, \"expected\": \"99999999999999999999\"}",
        )
        .expect("a data set");
        assert_eq!(data.samples()[0].expected, u64::MAX);
        assert_eq!(data.samples()[0].input, "NaN \" 99999999999999999999");
        assert_eq!(data.samples().len(), 2);
    }

    #[test]
    fn a_file_in_another_encoding_is_rejected_with_the_way_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("data.jsonl");
        for (bytes, words) in [
            (b"\xff\xfe{\x00".to_vec(), "line 1 of the data set: it is UTF-16"),
            (b"{\"input\": 1}\n{\"input\": \"\xe9\"}".to_vec(), "line 2 of the data set: it is not UTF-8"),
        ] {
            std::fs::write(&file, bytes).expect("written");
            let error = Dataset::read(&file).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_sample_without_an_expected_value_is_known_by_its_line() {
        let text = "{\"input\": 1, \"expected\": null}\n\n{\"input\": 2}";
        let data = Dataset::parse(text).expect("a data set");
        assert_eq!(data.line_without_expected(), Some(3));
        assert_eq!(data.first(1).line_without_expected(), None);
    }

    #[test]
    fn a_fingerprint_depends_on_content_and_not_on_formatting() {
        let print = |text| Dataset::parse(text).expect("a data set").fingerprint;
        assert_eq!(print("{\"input\": 1, \"id\": 2}"), print("{\"id\":2,\"input\":1}\n\n"));
        assert_ne!(print("{\"id\": 2, \"input\": 1}"), print("{\"id\": 2, \"input\": 3}"));
    }
}
