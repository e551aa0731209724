//! How a value is printed: for people, or as strict JSON.

use std::io::IsTerminal as _;

use snakepit::{Value, harmless};

use crate::say;

/// What is longer than a line of a usual terminal is shown on several.
const LINE: usize = 80;

#[derive(Clone, Copy)]
pub(super) enum Form {
    Json,
    People { terminal: bool },
}

impl Form {
    pub(super) fn for_people() -> Self {
        Self::People { terminal: std::io::stdout().is_terminal() }
    }

    /// The bytes to print, or why there are none.
    pub(super) fn render(self, value: &Value) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = match (self, value) {
            (Self::Json, value) => say::plain_json(serde_json::to_string(value)?).into_bytes(),
            (Self::People { terminal: false }, Value::Bytes(bytes)) => return Ok(bytes.to_vec()),
            (Self::People { terminal: false }, Value::Str(text)) => text.clone().into_bytes(),
            (Self::People { terminal: true }, Value::Str(text)) => harmless(text).into_owned().into_bytes(),
            (Self::People { terminal }, value) => for_people(value, terminal).into_bytes(),
        };
        bytes.push(b'\n');
        Ok(bytes)
    }
}

fn for_people(value: &Value, terminal: bool) -> String {
    let compact = value.to_string();
    if terminal && compact.len() > LINE && matches!(value, Value::List(_) | Value::Map(_)) {
        // What JSON cannot say stays compact.
        return serde_json::to_string_pretty(value).map_or(compact, say::plain_json);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;
    use snakepit::value::Map;

    fn shown(form: Form, value: impl Into<Value>) -> String {
        let bytes = form.render(&value.into()).expect("a form");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn people_get_text_as_it_is_and_the_rest_like_json() {
        let people = Form::People { terminal: false };
        assert_eq!(shown(people, "a \"b\""), "a \"b\"\n");
        assert_eq!(shown(people, vec![1, 2]), "[1,2]\n");
        assert_eq!(shown(people, ()), "null\n");
        assert_eq!(shown(people, 1.0), "1.0\n");
        assert_eq!(shown(people, bytes(b"raw")), "raw");
        assert_eq!(shown(Form::People { terminal: true }, bytes(b"\0")), "b\"\\x00\"\n");
        assert_eq!(shown(people, "\x1b[31m"), "\x1b[31m\n", "a pipe gets what the worker said");
        assert_eq!(shown(Form::People { terminal: true }, "\x1b[31m"), "\\u{1b}[31m\n");
        assert_eq!(shown(Form::Json, "\u{9b}31m"), "\"\\u009b31m\"\n");
    }

    #[test]
    fn long_values_take_several_lines_on_a_terminal_only() {
        let long: Vec<i32> = (0..100).collect();
        assert_eq!(shown(Form::People { terminal: true }, long.clone()).lines().count(), 102);
        assert_eq!(shown(Form::People { terminal: false }, long).lines().count(), 1);
    }

    #[test]
    fn json_is_strict() {
        assert_eq!(shown(Form::Json, "a \"b\""), "\"a \\\"b\\\"\"\n");
        assert_eq!(shown(Form::Json, f64::NAN), "null\n");
        assert_eq!(shown(Form::Json, bytes(b"raw")), "\"cmF3\"\n");
        let mut map = Map::new();
        map.insert((), 1);
        assert!(Form::Json.render(&Value::Map(map)).is_err());
    }

    fn bytes(bytes: &'static [u8]) -> Value {
        Value::Bytes(bytes.into())
    }
}
