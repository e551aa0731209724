//! Reads one sample from a line, or says why the line is not a sample.

use serde_json::{Map, Value as Json};

use super::Sample;
use crate::EvalError;

/// Returns the text of a file. Rejects any encoding but UTF-8 and names the line.
pub(super) fn text(bytes: &[u8]) -> Result<&str, EvalError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let reason = "it is UTF-16: save the file as UTF-8, for example with iconv -f UTF-16 -t UTF-8";
        return Err(EvalError::Sample { line: 1, reason: reason.into() });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        EvalError::Sample { line, reason: "it is not UTF-8: save the file as UTF-8".into() }
    })
}

/// Reads a sample. Reports whether it has an expected value.
pub(super) fn sample(line: usize, content: &str) -> Result<(Sample, bool), String> {
    let mut object: Map<String, Json> = match serde_json::from_str(content) {
        Ok(Json::Object(object)) => object,
        Ok(_) => return Err("it is not a JSON object: write {\"input\": …}".into()),
        Err(error) => return Err(why_no_json(content).unwrap_or_else(|| not_json(&error))),
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
        Some(_) => return Err("its id must be a text or a number".into()),
    };
    let Some(input) = object.remove("input") else { return Err("it has no \"input\": add one".into()) };
    let expected = object.remove("expected");
    let has_expected = expected.is_some();
    let sample = Sample { id, input, expected: expected.unwrap_or(Json::Null), rest: object };
    Ok((sample, has_expected))
}

/// Returns what the parser rejects. The sample is one line, so the parser's line number says nothing.
fn not_json(error: &serde_json::Error) -> String {
    format!("it is not JSON: {}", error.to_string().replace(" at line 1 column ", " at column "))
}

/// Returns the reason if the line contains a word that Python's `json.dumps` writes for a float that JSON cannot
/// represent.
fn why_no_json(content: &str) -> Option<String> {
    let known = ["NaN", "Infinity", "-Infinity"];
    let word = bare_words(content).find(|word| known.contains(word))?;
    Some(format!(
        "it holds {word}, which JSON cannot represent: write null or a text, or leave the sample out"
    ))
}

/// Reports whether the word is an integer of more than 64 bits.
fn is_too_large(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer && word.parse::<i64>().is_err() && word.parse::<u64>().is_err()
}

/// Returns the words outside of texts: numbers, and names such as `null`.
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
