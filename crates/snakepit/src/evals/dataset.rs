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
    /// The first line that says nothing of what is expected, and the place of its sample.
    without_expected: Option<(usize, usize)>,
    fingerprint: String,
}

impl Dataset {
    /// Reads a file of JSON lines.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, EvalError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| EvalError::file("read", path, error))?;
        Self::parse(text(&bytes)?)
    }

    /// Reads JSON lines. Empty lines are passed over, and so is the mark that some editors put before the first one.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let mut samples = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut without_expected = None;
        for (line, content) in lines {
            let (sample, has_expected) =
                sample(line, content).map_err(|reason| EvalError::Sample { line, reason })?;
            if !has_expected {
                without_expected.get_or_insert((samples.len(), line));
            }
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
        Ok(Self { samples, without_expected, fingerprint })
    }

    /// Only the first so many.
    pub fn first(mut self, samples: usize) -> Self {
        self.samples.truncate(samples.max(1));
        self.without_expected = self.without_expected.filter(|(place, _)| *place < self.samples.len());
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

    /// The fingerprint of the first so many, if there are as many.
    pub(super) fn fingerprint_of_first(&self, samples: usize) -> Option<String> {
        self.samples.get(..samples).map(fingerprint)
    }

    /// The first line that says nothing of what is expected.
    pub(super) fn line_without_expected(&self) -> Option<usize> {
        self.without_expected.map(|(_, line)| line)
    }
}

/// The text of a file. What is not UTF-8 is refused with its line.
fn text(bytes: &[u8]) -> Result<&str, EvalError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let reason = "it is UTF-16: save the file as UTF-8, for example with iconv -f UTF-16 -t UTF-8";
        return Err(EvalError::Sample { line: 1, reason: reason.into() });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        EvalError::Sample { line, reason: "it is not UTF-8: save the file as UTF-8".into() }
    })
}

/// A sample, and whether it says what is expected.
fn sample(line: usize, content: &str) -> Result<(Sample, bool), String> {
    let mut object: Map<String, Json> = match serde_json::from_str(content) {
        Ok(Json::Object(object)) => object,
        Ok(_) => return Err("it is no JSON object".into()),
        Err(error) => return Err(why_no_json(content).unwrap_or_else(|| error.to_string())),
    };
    if let Some(number) = bare_words(content).find(|word| is_too_large(word)) {
        return Err(format!(
            "the integer {number} has more than 64 bits and would be rounded: write it as a text, \"{number}\" (an answer that \
             large is compared as a text, too)"
        ));
    }
    let id = match object.remove("id") {
        None | Some(Json::Null) => line.to_string(),
        Some(Json::String(id)) => id,
        Some(Json::Number(id)) => id.to_string(),
        Some(_) => return Err("its id is neither text nor a number".into()),
    };
    let Some(input) = object.remove("input") else { return Err("it has no input".into()) };
    let expected = object.remove("expected");
    let has_expected = expected.is_some();
    let sample = Sample { id, input, expected: expected.unwrap_or(Json::Null), rest: object };
    Ok((sample, has_expected))
}

/// What Python's `json.dumps` writes for floats that JSON has no number for.
fn why_no_json(content: &str) -> Option<String> {
    let known = ["NaN", "Infinity", "-Infinity"];
    let word = bare_words(content).find(|word| known.contains(word))?;
    Some(format!(
        "it holds {word}, which JSON has no number for: write null or a text, or leave the sample out"
    ))
}

/// An integer that 64 bits do not hold.
fn is_too_large(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer && word.parse::<i64>().is_err() && word.parse::<u64>().is_err()
}

/// What stands outside of texts: numbers, and words such as `null`.
fn bare_words(content: &str) -> impl Iterator<Item = &str> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
    let (mut in_text, mut is_escaped) = (false, false);
    content
        .split(move |letter: char| {
            match (in_text, letter) {
                _ if is_escaped => is_escaped = false,
                (true, '\\') => is_escaped = true,
                (_, '"') => in_text = !in_text,
                (true, _) => {}
                (false, letter) => return !is_word(letter),
            }
            true
        })
        .filter(|word| !word.is_empty())
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
            ("{\"input\": 1}\n{\"input\": [NaN]}", "line 2 of the data set: it holds NaN, which JSON"),
            ("{\"input\": -Infinity}", "line 1 of the data set: it holds -Infinity"),
            (
                "{\"input\": 18446744073709551616}",
                "line 1 of the data set: the integer 18446744073709551616 has more than 64 bits",
            ),
        ] {
            let error = Dataset::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn words_within_texts_and_large_numbers_that_fit_are_let_through() {
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
    fn a_file_in_another_encoding_is_refused_with_the_way_out() {
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
    fn a_sample_that_says_nothing_of_what_is_expected_is_known_by_its_line() {
        let text = "{\"input\": 1, \"expected\": null}\n\n{\"input\": 2}";
        let data = Dataset::parse(text).expect("a data set");
        assert_eq!(data.line_without_expected(), Some(3));
        assert_eq!(data.first(1).line_without_expected(), None);
    }

    #[test]
    fn a_fingerprint_follows_what_is_said_and_not_how_it_is_written() {
        let print = |text| Dataset::parse(text).expect("a data set").fingerprint;
        assert_eq!(print("{\"input\": 1, \"id\": 2}"), print("{\"id\":2,\"input\":1}\n\n"));
        assert_ne!(print("{\"id\": 2, \"input\": 1}"), print("{\"id\": 2, \"input\": 3}"));
    }
}
