//! What is asked: samples, one JSON object a line.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::EvalError;

/// One question and, where there is one, its answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its name, different from all others; the number of its line if it has none.
    pub id: String,
    /// What the command is called with: an object is arguments by name, anything else is one argument.
    pub input: Json,
    /// What the answer should be.
    #[serde(default)]
    pub expected: Json,
    /// Whatever else stands in its line.
    #[serde(flatten)]
    pub rest: Map<String, Json>,
}

/// The samples of an evaluation, in the order of their lines.
#[derive(Clone, PartialEq, Debug)]
pub struct Dataset {
    samples: Vec<Sample>,
    fingerprint: String,
}

impl Dataset {
    /// Reads a file of JSON lines.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, EvalError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| EvalError::file("read", path, error))?;
        Self::parse(&text)
    }

    /// Reads JSON lines. Empty lines are passed over.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let mut samples = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (line, content) in lines {
            let sample = sample(line, content).map_err(|reason| EvalError::Sample { line, reason })?;
            if let Some(first) = known.insert(sample.id.clone(), line) {
                let reason = format!("its id {:?} is that of line {first}", sample.id);
                return Err(EvalError::Sample { line, reason });
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            return Err(EvalError::Empty);
        }
        let fingerprint = fingerprint(&samples);
        Ok(Self { samples, fingerprint })
    }

    /// Only the first so many.
    pub fn first(mut self, samples: usize) -> Self {
        self.samples.truncate(samples.max(1));
        self.fingerprint = fingerprint(&self.samples);
        self
    }

    /// The samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// By which a checkpoint knows its data set again.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

fn sample(line: usize, content: &str) -> Result<Sample, String> {
    let mut object: Map<String, Json> = match serde_json::from_str(content) {
        Ok(Json::Object(object)) => object,
        Ok(_) => return Err("it is no JSON object".into()),
        Err(error) => return Err(error.to_string()),
    };
    let id = match object.remove("id") {
        None | Some(Json::Null) => line.to_string(),
        Some(Json::String(id)) => id,
        Some(Json::Number(id)) => id.to_string(),
        Some(_) => return Err("its id is neither text nor a number".into()),
    };
    let Some(input) = object.remove("input") else { return Err("it has no input".into()) };
    let expected = object.remove("expected").unwrap_or(Json::Null);
    Ok(Sample { id, input, expected, rest: object })
}

/// FNV-1a of what the samples say, not of how it is written. It guards against mistakes, not against malice.
fn fingerprint(samples: &[Sample]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for sample in samples {
        let text = serde_json::to_string(sample).unwrap_or_default();
        for byte in text.bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    let mut text = String::new();
    let _ = write!(text, "{hash:016x}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_all_that_stands_in_their_lines() {
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
    fn what_is_no_sample_is_refused_with_its_line() {
        for (text, words) in [
            ("{\"input\": 1}\n[1]", "line 2 of the data set: it is no JSON object"),
            ("{\"id\": \"a\"}", "line 1 of the data set: it has no input"),
            ("{\"id\": [], \"input\": 1}", "line 1 of the data set: its id is neither text nor a number"),
            ("{\"id\": 1, \"input\": 1}\n\n{\"id\": \"1\", \"input\": 2}", "its id \"1\" is that of line 1"),
            ("{\"input\": ", "line 1 of the data set: EOF"),
            ("\n", "no samples"),
        ] {
            let error = Dataset::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_fingerprint_follows_what_is_said_and_not_how_it_is_written() {
        let print = |text| Dataset::parse(text).expect("a data set").fingerprint;
        assert_eq!(print("{\"input\": 1, \"id\": 2}"), print("{\"id\":2,\"input\":1}\n\n"));
        assert_ne!(print("{\"id\": 2, \"input\": 1}"), print("{\"id\": 2, \"input\": 3}"));
    }
}
