//! The notation of evaluators: `exact`, `numeric:1%`, `{"any_of": ["exact", "contains"]}`.

use std::path::Path;

use regex::Regex;
use serde_json::{Value as Json, json};
use serde_json_path::JsonPath;

use super::Evaluator;
use crate::EvalError;

/// The relative tolerance of `numeric`: enough for equal numbers that were computed in different orders.
const DEFAULT_TOLERANCE: f64 = 1e-9;

const KNOWN: &str = "write exact, contains, numeric, numeric:0.1, numeric:1%, regex, regex:PATTERN, path:$.JSON.PATH, \
                     judge:COMMAND, python:FUNCTION, python:FILE.py:FUNCTION, or {\"all_of\": […]}, {\"any_of\": […]}";

/// The depth to which `all_of` and `any_of` may be nested.
const MAX_DEPTH: usize = 16;

impl Evaluator {
    /// Reads an evaluator from a text: a name, a name with its argument after a colon, or JSON.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let wrong = |reason| EvalError::Evaluator { what: text.to_owned(), reason };
        let value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| wrong(format!("it is not JSON: {error}")))?
        } else {
            Json::String(text.to_owned())
        };
        read(&value, 0).map_err(wrong)
    }

    /// Reads an evaluator from JSON: a text that [`Evaluator::parse`] accepts, or an object with one key:
    /// `{"regex": "^a"}`, `{"numeric": {"absolute": 0.1}}`, `{"all_of": […]}`.
    pub fn from_json(value: &Json) -> Result<Self, EvalError> {
        read(value, 0).map_err(|reason| EvalError::Evaluator { what: value.to_string(), reason })
    }

    /// Returns the canonical JSON form of the evaluator, which [`Evaluator::from_json`] reads. A function of the host
    /// is reduced to its name.
    pub fn to_json(&self) -> Json {
        let all = |parts: &[Self]| parts.iter().map(Self::to_json).collect::<Vec<_>>();
        match self {
            Self::Exact => json!("exact"),
            Self::Contains => json!("contains"),
            Self::Numeric { absolute, relative } => {
                json!({ "numeric": { "absolute": absolute, "relative": relative } })
            }
            Self::Regex(None) => json!("regex"),
            Self::Regex(Some(pattern)) => json!({ "regex": pattern.as_str() }),
            Self::Path(path) => json!({ "path": path.to_string() }),
            Self::AllOf(parts) => json!({ "all_of": all(parts) }),
            Self::AnyOf(parts) => json!({ "any_of": all(parts) }),
            Self::Judge { command, pool: None } => json!({ "judge": command }),
            Self::Judge { command, pool } => json!({ "judge": { "command": command, "pool": pool } }),
            Self::Python { file: None, function } => json!({ "python": function }),
            Self::Python { file: Some(file), function } => {
                json!({ "python": { "file": file.to_string_lossy(), "function": function } })
            }
            Self::Function(function) => json!({ "function": function.name() }),
        }
    }
}

fn read(value: &Json, depth: usize) -> Result<Evaluator, String> {
    if depth > MAX_DEPTH {
        return Err(format!("it is nested more than {MAX_DEPTH} levels deep: write it with fewer levels"));
    }
    match value {
        Json::String(text) => from_text(text),
        Json::Object(object) => match object.iter().collect::<Vec<_>>()[..] {
            [(name, argument)] => from_object(name, argument, depth),
            _ => Err("an object must have one key, the evaluator's name, such as {\"any_of\": […]}".into()),
        },
        _ => Err(KNOWN.into()),
    }
}

fn from_text(text: &str) -> Result<Evaluator, String> {
    let (name, argument) = match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    };
    match (name.trim(), argument) {
        ("exact", None) => Ok(Evaluator::Exact),
        ("contains", None) => Ok(Evaluator::Contains),
        ("numeric", None) => Ok(Evaluator::Numeric { absolute: 0.0, relative: DEFAULT_TOLERANCE }),
        ("numeric", Some(argument)) => match argument.trim().strip_suffix('%') {
            Some(percent) => tolerance(0.0, percent.trim().parse::<f64>().unwrap_or(f64::NAN) / 100.0),
            None => tolerance(argument.trim().parse().unwrap_or(f64::NAN), 0.0),
        },
        ("regex", None) => Ok(Evaluator::Regex(None)),
        ("regex", Some(argument)) => pattern(argument),
        ("path", Some(argument)) => path(argument),
        ("judge", Some(command)) if !command.is_empty() => {
            Ok(Evaluator::Judge { command: command.to_owned(), pool: None })
        }
        ("python", Some(argument)) => match argument.rsplit_once(':') {
            Some((file, function)) if !file.is_empty() => python(Some(file), function),
            Some(_) => Err(KNOWN.into()),
            None => python(None, argument),
        },
        _ => Err(KNOWN.into()),
    }
}

fn python(file: Option<&str>, function: &str) -> Result<Evaluator, String> {
    if function.is_empty() {
        return Err("it names no function: write python:FILE.py:FUNCTION".into());
    }
    if file.is_none() && Path::new(function).extension().is_some_and(|extension| extension == "py") {
        return Err(format!("it names no function: write python:{function}:FUNCTION"));
    }
    Ok(Evaluator::Python { file: file.map(Into::into), function: function.to_owned() })
}

fn from_object(name: &str, argument: &Json, depth: usize) -> Result<Evaluator, String> {
    let parts = || match argument {
        Json::Array(parts) if !parts.is_empty() => {
            parts.iter().map(|part| read(part, depth + 1)).collect::<Result<Vec<_>, _>>()
        }
        _ => {
            Err(format!("{name} needs a list of evaluators: write {{\"{name}\": [\"exact\", \"contains\"]}}"))
        }
    };
    match (name, argument) {
        ("all_of", _) => Ok(Evaluator::AllOf(parts()?)),
        ("any_of", _) => Ok(Evaluator::AnyOf(parts()?)),
        ("regex", Json::String(text)) => pattern(text),
        ("path", Json::String(text)) => path(text),
        ("judge", Json::String(command)) => Ok(Evaluator::Judge { command: command.clone(), pool: None }),
        ("judge", Json::Object(object)) => {
            let text = |key: &str| object.get(key).and_then(Json::as_str).map(str::to_owned);
            check_keys(object, &["command", "pool"])?;
            let command = text("command")
                .ok_or("it names no command: write {\"judge\": {\"command\": \"COMMAND\"}}")?;
            Ok(Evaluator::Judge { command, pool: text("pool") })
        }
        ("python", Json::String(function)) => python(None, function),
        ("python", Json::Object(object)) => {
            let text = |key: &str| object.get(key).and_then(Json::as_str);
            check_keys(object, &["file", "function"])?;
            python(
                text("file"),
                text("function")
                    .ok_or("it names no function: write {\"python\": {\"function\": \"FUNCTION\"}}")?,
            )
        }
        ("function", _) => {
            Err("it is a function of the program that made the plan: pass it to EvalPlan::new".into())
        }
        ("numeric", Json::Object(object)) => {
            check_keys(object, &["absolute", "relative"])?;
            let number = |key: &str| object.get(key).map_or(0.0, |it| it.as_f64().unwrap_or(f64::NAN));
            tolerance(number("absolute"), number("relative"))
        }
        _ => Err(KNOWN.into()),
    }
}

fn check_keys(object: &serde_json::Map<String, Json>, keys: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(other) => Err(format!("it cannot have the key {other:?}: use {}", keys.join(" and "))),
        None => Ok(()),
    }
}

fn tolerance(absolute: f64, relative: f64) -> Result<Evaluator, String> {
    if [absolute, relative].iter().all(|it| it.is_finite() && *it >= 0.0) {
        Ok(Evaluator::Numeric { absolute, relative })
    } else {
        Err("its tolerance must be a number of at least 0, or a percentage such as 1%".into())
    }
}

fn pattern(text: &str) -> Result<Evaluator, String> {
    let wrong = |error| format!("its pattern is wrong: {error}");
    Regex::new(text).map(|pattern| Evaluator::Regex(Some(pattern))).map_err(wrong)
}

fn path(text: &str) -> Result<Evaluator, String> {
    let wrong = |error| format!("its JSON path is wrong ({error}): write one such as $.answer");
    JsonPath::parse(text).map(Evaluator::Path).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use snakepit_error_texts::ErrorTexts;

    use super::*;

    #[test]
    fn every_form_survives_writing_and_reading() {
        for text in [
            "exact",
            "contains",
            "numeric",
            "numeric:0.5",
            "numeric: 2 %",
            "regex",
            "regex:a:b",
            "path:$.a[0]",
            "judge:grade",
            "python:grade",
            "python:judges/strict.py:grade",
            "{\"judge\": {\"command\": \"grade\", \"pool\": \"judges\"}}",
            "{\"all_of\": [\"exact\", {\"any_of\": [\"contains\", {\"numeric\": {\"absolute\": 1}}]}]}",
        ] {
            let json = Evaluator::parse(text).expect(text).to_json();
            assert_eq!(Evaluator::from_json(&json).expect(text).to_json(), json, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_evaluator_is_rejected_with_what_to_write() {
        let mut texts = ErrorTexts::new();
        let deep = "{\"all_of\": [".repeat(20) + "\"exact\"" + &"]}".repeat(20);
        for text in [
            "exakt",
            "",
            "exact:1",
            "numeric:x",
            "numeric:-1",
            "regex:(",
            "path:a",
            "judge:",
            "python:",
            "python::f",
            "python:judge.py",
            "{",
            "{}",
            "{\"all_of\": []}",
            "{\"all_of\": [\"x\"]}",
            "{\"numeric\": {\"abs\": 1}}",
            "{\"judge\": {}}",
            "{\"python\": {}}",
            "{\"function\": \"mine\"}",
            &deep,
        ] {
            let error = Evaluator::parse(text).expect_err("no evaluator").to_string();
            let shown = error.split_once(" is not an evaluator: ").map_or(&*error, |(_, reason)| reason);
            texts.add_text(if text.len() > 100 { "deep" } else { text }, &shown);
        }
        insta::assert_snapshot!(texts);
    }
}
