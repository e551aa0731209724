//! Formats a result for people or as strict JSON.

use std::io::IsTerminal as _;

use snakepit::Value;
use snakepit::value::{Map, harmless};

use crate::shared::output;

/// On a terminal, a longer value takes several lines.
const LINE: usize = 80;

#[derive(Clone, Copy)]
pub(super) enum ResultFormat {
    Json,
    People { terminal: bool },
}

impl ResultFormat {
    pub(super) fn for_people() -> Self {
        Self::People { terminal: std::io::stdout().is_terminal() }
    }

    /// Returns the bytes to print.
    pub(super) fn render(self, value: &Value) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = match (self, value) {
            (Self::Json, value) if has_equal_keys(value) => {
                output::harmless_json(serde_json::to_string(&as_pairs(value))?).into_bytes()
            }
            (Self::Json, value) => output::harmless_json(serde_json::to_string(value)?).into_bytes(),
            (Self::People { terminal: false }, Value::Bytes(bytes)) => return Ok(bytes.to_vec()),
            (Self::People { terminal: false }, Value::Str(text)) => text.clone().into_bytes(),
            (Self::People { terminal: true }, Value::Str(text)) => harmless(text).into_owned().into_bytes(),
            (Self::People { terminal }, value) => for_people(value, terminal).into_bytes(),
        };
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Returns the JSON form of a key, or `None` if JSON has none.
fn key_in_json(key: &Value) -> Option<String> {
    match key {
        Value::Str(text) => Some(text.clone()),
        key => serde_json::to_string(key).ok(),
    }
}

fn keys_clash(map: &Map) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    map.iter().filter_map(|(key, _)| key_in_json(key)).any(|key| !seen.insert(key))
}

/// Reports whether the value contains a map with keys that JSON cannot tell apart, such as 1 and "1".
fn has_equal_keys(value: &Value) -> bool {
    match value {
        Value::List(list) => list.iter().any(has_equal_keys),
        Value::Map(map) => keys_clash(map) || map.iter().any(|(_, value)| has_equal_keys(value)),
        _ => false,
    }
}

/// Converts maps with such keys into lists of pairs to keep all entries.
fn as_pairs(value: &Value) -> Value {
    match value {
        Value::List(list) => list.iter().map(as_pairs).collect(),
        Value::Map(map) if keys_clash(map) => {
            map.iter().map(|(key, value)| Value::List(vec![key.clone(), as_pairs(value)])).collect()
        }
        Value::Map(map) => {
            Value::Map(map.iter().map(|(key, value)| (key.clone(), as_pairs(value))).collect())
        }
        other => other.clone(),
    }
}

fn for_people(value: &Value, terminal: bool) -> String {
    let compact = value.to_string();
    if terminal && compact.len() > LINE && matches!(value, Value::List(_) | Value::Map(_)) {
        // A value without a JSON form stays compact.
        return serde_json::to_string_pretty(value).map_or(compact, output::harmless_json);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: ResultFormat, value: impl Into<Value>) -> String {
        let bytes = format.render(&value.into()).expect("a format");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn people_see_text_unchanged_and_other_values_as_json() {
        let people = ResultFormat::People { terminal: false };
        assert_eq!(shown(people, "a \"b\""), "a \"b\"\n");
        assert_eq!(shown(people, vec![1, 2]), "[1,2]\n");
        assert_eq!(shown(people, ()), "null\n");
        assert_eq!(shown(people, 1.0), "1.0\n");
        assert_eq!(shown(people, bytes(b"raw")), "raw");
        assert_eq!(shown(ResultFormat::People { terminal: true }, bytes(b"\0")), "b\"\\x00\"\n");
        assert_eq!(shown(people, "\x1b[31m"), "\x1b[31m\n", "a pipe gets what the worker said");
        assert_eq!(shown(ResultFormat::People { terminal: true }, "\x1b[31m"), "\\u{1b}[31m\n");
        assert_eq!(shown(ResultFormat::Json, "\u{9b}31m"), "\"\\u009b31m\"\n");
    }

    #[test]
    fn long_values_span_several_lines_only_on_a_terminal() {
        let long: Vec<i32> = (0..100).collect();
        assert_eq!(shown(ResultFormat::People { terminal: true }, long.clone()).lines().count(), 102);
        assert_eq!(shown(ResultFormat::People { terminal: false }, long).lines().count(), 1);
    }

    #[test]
    fn json_is_strict() {
        assert_eq!(shown(ResultFormat::Json, "a \"b\""), "\"a \\\"b\\\"\"\n");
        assert_eq!(shown(ResultFormat::Json, f64::NAN), "null\n");
        assert_eq!(shown(ResultFormat::Json, bytes(b"raw")), "\"cmF3\"\n");
        let mut map = Map::new();
        map.insert((), 1);
        assert!(ResultFormat::Json.render(&Value::Map(map)).is_err());
    }

    #[test]
    fn keys_that_json_cannot_tell_apart_become_pairs() {
        let mut mixed = Map::new();
        mixed.insert(1, "number");
        mixed.insert("1", "text");
        let mut outer = Map::new();
        outer.insert("plain", 1);
        outer.insert("mixed", Value::Map(mixed));
        let shown = shown(ResultFormat::Json, Value::Map(outer));
        assert_eq!(shown, "{\"plain\":1,\"mixed\":[[1,\"number\"],[\"1\",\"text\"]]}\n");
    }

    fn bytes(bytes: &'static [u8]) -> Value {
        Value::Bytes(bytes.into())
    }
}
