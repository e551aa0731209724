//! Values as JSON, exactly or not at all: a value that JSON cannot represent is an error that names its place.
//!
//! JSON has no byte strings, no date-times, no NaN, and no keys other than text. Its integers are unbounded, but its
//! readers are not: beyond 64 bits, most of them silently produce another number. Such integers are therefore
//! rejected in both directions.

use std::io::Write as _;

#[cfg(feature = "stdio")]
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

#[cfg(feature = "stdio")]
use crate::call::{Call, Input};
use crate::call::{RemoteError, RemoteErrorKind};
#[cfg(any(feature = "grpc", feature = "http", test))]
use crate::value::Encoded;
use crate::value::{Value, ValueError};

/// The range of integers that a worker can represent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Integers {
    /// From `i64::MIN` to `u64::MAX`.
    Of64Bits,
    /// The integers that a float represents exactly: below 2^53.
    Safe,
}

impl Integers {
    /// Returns the range that the worker's features declare.
    pub(super) fn of(features: &[String]) -> Self {
        if features.iter().any(|feature| feature == SAFE_INTEGERS) { Self::Safe } else { Self::Of64Bits }
    }

    /// Returns the first integer in a worker's answer that would become another number when read. Returns `None` if
    /// the worker's integers are floats: an integer that is read as a float is then what the worker meant.
    pub(super) fn first_unreadable(self, text: &[u8]) -> Option<&str> {
        match self {
            Self::Of64Bits => long_integer(text),
            Self::Safe => None,
        }
    }

    fn check(self, number: i128) -> Result<(), ValueError> {
        const SAFE: i128 = (1 << 53) - 1;
        let (i64s, u64s) = (i128::from(i64::MIN), i128::from(u64::MAX));
        match self {
            Self::Of64Bits | Self::Safe if !(i64s..=u64s).contains(&number) => {
                Err(none("an integer of more than 64 bits"))
            }
            Self::Safe if !(-SAFE..=SAFE).contains(&number) => Err(ValueError::unsendable(format!(
                "this worker reads integers up to 2^53, and {number} is beyond: send it as text"
            ))),
            Self::Of64Bits | Self::Safe => Ok(()),
        }
    }
}

/// The feature that a worker declares if its integers are floats.
const SAFE_INTEGERS: &str = "safe-integers";

/// Writes a value as JSON.
pub(super) fn write(out: &mut Vec<u8>, value: &Value, integers: Integers) -> Result<(), ValueError> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => {
            integers.check(*number)?;
            let _ = write!(out, "{number}");
        }
        Value::BigInt(_) => return Err(none("an integer of more than 64 bits")),
        Value::Float(number) if number.is_finite() => scalar(out, number)?,
        Value::Float(_) => return Err(none("a number that is not finite")),
        Value::Str(text) => write_text(out, text),
        Value::Bytes(_) => return Err(none("a byte string")),
        Value::DateTime(_) | Value::NaiveDateTime(_) => return Err(none("a date-time")),
        Value::List(list) => {
            out.push(b'[');
            for (index, entry) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(out, entry, integers).map_err(|error| error.at_index(index))?;
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            for (index, (key, entry)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let Value::Str(name) = key else { return Err(none("a key that is not text").at_key(key)) };
                write_text(out, name);
                out.push(b':');
                write(out, entry, integers).map_err(|error| error.at_key(key))?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// Writes a text.
///
/// Written here because `serde_json` looks each byte up in a table, which for a megabyte takes as long as all else that
/// happens to it on its way.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + 2);
    out.push(b'"');
    loop {
        let (plain, escaped) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = escaped.split_first() else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\x08' => out.extend_from_slice(b"\\b"),
            b'\x0c' => out.extend_from_slice(b"\\f"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = after;
    }
    out.push(b'"');
}

/// Returns how many of the first bytes of a text are in JSON as they are.
fn plain_length(text: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // Without an early exit inside a block, the compiler compares all its bytes at once.
    let is_plain = |block: &&[u8]| !block.iter().fold(false, |found, byte| found | is_escaped(*byte));
    let blocks = BLOCK * text.chunks_exact(BLOCK).take_while(is_plain).count();
    blocks + text[blocks..].iter().take_while(|byte| !is_escaped(**byte)).count()
}

/// Writes a number or a string.
pub(super) fn scalar<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), ValueError> {
    serde_json::to_writer(out, value).map_err(|error| ValueError::unsendable(error.to_string()))
}

fn none(what: &str) -> ValueError {
    ValueError::unsendable(format!("{what} has no form in JSON: send it as text"))
}

/// Writes the arguments of a call: named arguments as an object, positional arguments as a list.
#[cfg(feature = "stdio")]
pub(super) fn write_arguments(out: &mut Vec<u8>, call: &Call, integers: Integers) -> Result<(), ValueError> {
    let Input::One(arguments) = call.input() else {
        return Err(ValueError::unsendable("this adapter takes one call at a time"));
    };
    match arguments.to_value()? {
        named_or_listed @ (Value::Map(_) | Value::List(_)) => write(out, &named_or_listed, integers),
        one => write(out, &Value::List(vec![one]), integers),
    }
}

/// Reads a value that a worker sent. Rejects an integer that would become another number.
#[cfg(any(feature = "grpc", feature = "http", test))]
pub(super) fn read(text: &[u8], integers: Integers) -> Result<Encoded, String> {
    match integers.first_unreadable(text) {
        Some(number) => Err(too_long(number)),
        None => serde_json::from_slice(text).map_err(|error| error.to_string()),
    }
}

/// Returns the message for an integer that cannot be read.
pub(super) fn too_long(number: &str) -> String {
    let shown: String = number.chars().take(40).collect();
    format!("the integer {shown} has more than 64 bits: send it as text")
}

/// Returns the first integer with more than 64 bits in a text that is JSON or similar to it.
fn long_integer(text: &[u8]) -> Option<&str> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => at = end_of_string(text, at + 1),
            b'-' | b'0'..=b'9' => {
                let in_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = text[at..].iter().take_while(|byte| in_number(byte)).count();
                let number = std::str::from_utf8(&text[at..at + length]).unwrap_or_default();
                let is_integer = !number.contains(['.', 'e', 'E']);
                if length > 18
                    && is_integer
                    && number.parse::<i64>().is_err()
                    && number.parse::<u64>().is_err()
                {
                    return Some(number);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The byte after a backslash ends nothing.
        at += 1;
    }
    text.len()
}

/// Reads a field that may be present and null.
#[cfg(feature = "stdio")]
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a worker's error: an object with `type`, `message` and `traceback`, or a plain string.
pub(super) fn read_error(error: Json) -> RemoteError {
    let text = match &error {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let read = if error.is_object() { serde_json::from_value(error).ok() } else { None };
    let error: RemoteError = read.unwrap_or_else(|| RemoteError::new(RemoteErrorKind::default(), text));
    error.bounded()
}

#[cfg(test)]
mod tests {
    use snakepit_error_texts::ErrorTexts;

    use super::*;
    use crate::value::{BigInt, DateTime, Map};

    fn written(value: impl Into<Value>) -> Result<String, String> {
        written_for(Integers::Of64Bits, value)
    }

    fn written_for(integers: Integers, value: impl Into<Value>) -> Result<String, String> {
        let mut out = Vec::new();
        write(&mut out, &value.into(), integers).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn integers_beyond_float_precision_are_rejected_if_the_worker_has_only_floats() {
        let safe = Integers::of(&["other".into(), "safe-integers".into()]);
        for number in [(1i64 << 53) - 1, -(1 << 53) + 1, 0, -1] {
            assert_eq!(written_for(safe, number), Ok(number.to_string()));
        }
        for number in [1 << 53, -(1 << 53), i64::MAX, i64::MIN] {
            let error = written_for(safe, Map::from([("n", number)])).expect_err("an error");
            assert!(error.starts_with("n: this worker reads integers up to 2^53, and "), "{error}");
            assert_eq!(written_for(Integers::of(&[]), number), Ok(number.to_string()));
        }
        let error = written_for(safe, u128::MAX).expect_err("an error");
        assert!(error.contains("more than 64 bits"), "{error}");
    }

    #[test]
    fn json_values_round_trip() {
        let value = Value::from(Map::from([
            ("z", Value::from(vec![Value::Nil, true.into(), (-1).into(), u64::MAX.into(), i64::MIN.into()])),
            ("a", Value::from(vec![Value::from(1.0), 1e300.into(), "line\nbreak \u{2028} \"".into()])),
        ]));
        let text = written(value.clone()).expect("JSON");
        assert!(
            text.starts_with(r#"{"z":[null,true,-1,18446744073709551615,"#) && !text.contains('\n'),
            "{text}"
        );
        assert_eq!(
            read(text.as_bytes(), Integers::Of64Bits).expect("a value").to_value().expect("a value"),
            value
        );
    }

    /// With `serde_json` as the reference, and an escape at each place of a block.
    #[test]
    fn texts_are_escaped_wherever_they_need_it() {
        let every: String = (0..0x300).filter_map(char::from_u32).collect();
        let mut texts = vec![String::new(), every, "\u{1f600}\u{ffff}".repeat(40)];
        for byte in ['"', '\\', '\n', '\0', '\u{1f}', ' ', '\u{7f}', 'é'] {
            texts.extend((0..70).map(|at| format!("{}{byte}{}", "x".repeat(at), "y".repeat(70 - at))));
        }
        for text in texts {
            let expected = serde_json::to_string(&text).expect("JSON");
            assert_eq!(written(text.as_str()), Ok(expected));
        }
    }

    #[test]
    fn a_value_outside_json_is_rejected_with_its_path() {
        for (value, said) in [
            (Value::Bytes(vec![1].into()), "rows[1].x: a byte string has no form in JSON: send it as text"),
            (DateTime::new(0, 0).expect("a time").into(), "rows[1].x: a date-time has no form"),
            ((1i128 << 64).into(), "rows[1].x: an integer of more than 64 bits has no form"),
            (u128::MAX.into(), "rows[1].x: an integer of more than 64 bits has no form"),
            (f64::NAN.into(), "rows[1].x: a number that is not finite has no form"),
        ] {
            let row = Value::from(Map::from([("x", value)]));
            let error =
                written(Map::from([("rows", Value::from(vec![Value::Nil, row]))])).expect_err("an error");
            assert!(error.starts_with(said), "{error}");
        }
        let mut keyed = Map::new();
        keyed.insert(Value::from(1), Value::Nil);
        let error = written(keyed).expect_err("an error");
        assert!(error.starts_with("[1]: a key that is not text"), "{error}");
    }

    #[test]
    fn an_integer_does_not_become_another_number() {
        for text in [
            "18446744073709551616",
            "[1,-9223372036854775809]",
            r#"{"\"a":"x","b":123456789012345678901}"#,
            r#"["\\",123456789012345678901]"#,
        ] {
            let read = read(text.as_bytes(), Integers::Of64Bits);
            assert!(read.is_err_and(|error| error.contains("more than 64 bits")), "{text}");
        }
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            r#""123456789012345678901""#,
            r#"["\\\"123456789012345678901"]"#,
            "1.00000000000000000001",
        ] {
            assert!(read(text.as_bytes(), Integers::Of64Bits).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_float_without_a_point_is_read_where_integers_are_floats() {
        let read = read(b"[100000000000000000000]", Integers::Safe).expect("a value").to_value();
        assert_eq!(read.expect("a value"), Value::List(vec![1e20.into()]));
    }

    #[test]
    fn error_objects_of_any_shape_are_read() {
        let read = |text: &str| read_error(serde_json::from_str(text).expect("JSON"));
        let error = read(r#"{"type":"ValueError","message":"no","traceback":"here","code":1}"#);
        assert_eq!((error.kind.as_str(), error.to_string().as_str()), ("exception", "ValueError: no"));
        assert_eq!(error.traceback.as_deref(), Some("here"));
        assert_eq!(
            read(r#"{"kind":"unknown_command","message":"no"}"#).kind,
            crate::call::RemoteErrorKind::UnknownCommand
        );
        assert_eq!(read(r#""no""#).message, "no");
        assert_eq!(read(r#"{"message":7}"#).message, r#"{"message":7}"#);
    }
    #[test]
    fn values_without_a_form_in_json_are_refused_with_the_way_out() {
        let mut texts = ErrorTexts::new();
        let big: BigInt = "99999999999999999999".parse().expect("an integer");
        let time: DateTime = "2026-01-31T12:00:00Z".parse().expect("a date-time");
        for value in [
            Value::from(big),
            Value::from(f64::INFINITY),
            Value::from(bytes::Bytes::from_static(b"x")),
            Value::from(time),
            Value::from(Map::from([(Value::from(1), Value::Nil)])),
            Value::from(1_i64 << 53),
        ] {
            let written = write(&mut Vec::new(), &value, Integers::Safe);
            texts.add("", &written.expect_err("no form in JSON"));
        }
        let long = read(b"[99999999999999999999]", Integers::Of64Bits).expect_err("too long");
        texts.add_text("", &long);
        insta::assert_snapshot!(texts);
    }
}
