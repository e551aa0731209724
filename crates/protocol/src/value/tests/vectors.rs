//! Tests of the specification's vectors, which every side reads and writes in the same way.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::value::{BigInt, DateTime, Encoded, Map, NaiveDateTime, PayloadLayout, Value, ValueErrorKind};

pub(crate) fn vectors(file: &str) -> Vec<Json> {
    let path = format!("{}/../../spec/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut json = serde_json::Deserializer::from_str(&text);
    json.disable_recursion_limit();
    Vec::deserialize(&mut json).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn hex(text: &Json) -> Vec<u8> {
    let text = text.as_str().expect("hex");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn value(notation: &Json) -> Value {
    let (kind, content) = notation.as_object().and_then(|it| it.iter().next()).expect("one key");
    let number = |text: &Json| text.as_str().expect("text").parse::<i64>().expect("a number");
    match kind.as_str() {
        "nil" => Value::Nil,
        "bool" => Value::Bool(content.as_bool().expect("a boolean")),
        "int" => content.as_str().expect("text").parse::<BigInt>().expect("an integer").into(),
        "float_bits" => Value::Float(f64::from_bits(
            u64::from_str_radix(content.as_str().expect("text"), 16).expect("bits"),
        )),
        "str" => content.as_str().expect("text").into(),
        "bytes" => Value::Bytes(hex(content).into()),
        "list" => content.as_array().expect("a list").iter().map(value).collect(),
        "map" => {
            let entries = content.as_array().expect("a list").iter();
            Value::Map(entries.map(|entry| (value(&entry[0]), value(&entry[1]))).collect::<Map>())
        }
        "aware" => DateTime::new(number(&content[0]), number(&content[1]) as i32).expect("an offset").into(),
        "naive" => NaiveDateTime::new(number(content)).into(),
        other => panic!("unknown notation {other}"),
    }
}

/// Reports whether two values are equal to the bit: a NaN equals itself, and the two zeros differ.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(a.0, b.0) && same(a.1, b.1))
        }
        (a, b) => a == b,
    }
}

/// Builds the payload of a frame from a vector, with bodies if the vector has any.
fn encoded(vector: &Json) -> Encoded {
    let head = hex(&vector["hex"]);
    let Some(bodies) = vector.get("bodies") else {
        return Encoded::from_payload(Bytes::from(head), PayloadLayout::Plain).expect("a payload");
    };
    let mut payload = (head.len() as u32).to_le_bytes().to_vec();
    payload.extend(head);
    payload.extend(hex(bodies));
    Encoded::from_payload(Bytes::from(payload), PayloadLayout::WithBodies).expect("a payload")
}

fn flag(vector: &Json, name: &str) -> bool {
    vector.get(name).and_then(Json::as_bool).unwrap_or(false)
}

#[test]
fn every_vector_decodes_to_its_value() {
    let all = vectors("values.json");
    assert!(all.len() > 100);
    for vector in all {
        let read = encoded(&vector).to_value();
        let expected = value(&vector["value"]);
        assert!(read.as_ref().is_ok_and(|it| same(it, &expected)), "{}: {read:?}", vector["name"]);
    }
}

#[test]
fn serde_and_the_direct_reader_agree_on_every_vector() {
    for vector in vectors("values.json") {
        let through_serde: Value = encoded(&vector).decode().expect("a value");
        assert!(same(&through_serde, &value(&vector["value"])), "{}: {through_serde}", vector["name"]);
    }
}

#[test]
fn every_value_encodes_to_its_vector() {
    for vector in vectors("values.json").iter().filter(|it| !flag(it, "decode_only")) {
        let written = Encoded::encode(&value(&vector["value"])).expect("a value that can be sent");
        assert_eq!(written.head(), hex(&vector["hex"]), "{}", vector["name"]);
        assert!(!written.has_bodies());
    }
}

#[test]
fn invalid_vectors_are_rejected() {
    for vector in vectors("invalid.json") {
        let name = &vector["name"];
        for read in [encoded(&vector).to_value(), encoded(&vector).decode::<Value>()] {
            let error = read.expect_err(name.as_str().expect("a name"));
            assert_eq!(error.kind(), ValueErrorKind::Malformed, "{name}: {error}");
        }
    }
}

#[test]
fn an_invalid_vector_is_rejected_with_its_reason() {
    let words = [
        ("truncated", "the bytes end inside the value"),
        ("trailing", "the value"),
        ("reserved", "0xc1"),
        ("utf8", "UTF-8"),
        ("depth", "128 levels"),
        ("extension", "unknown extension type"),
        ("extension_length", "cannot have a length of"),
        ("timestamp", "nanoseconds"),
        ("key", "a map cannot be a key"),
        ("body", "outside the bodies"),
    ];
    for vector in vectors("invalid.json") {
        let reason = vector["reason"].as_str().expect("a reason");
        let (_, word) = words.iter().find(|(it, _)| *it == reason).expect("a known reason");
        let error = encoded(&vector).to_value().expect_err("invalid");
        assert!(error.message().contains(word), "{}: {error}", vector["name"]);
    }
}

#[test]
fn the_payloads_of_frames_are_read_and_written() {
    for vector in vectors("frames.json").iter().filter(|it| !it["payload"].is_null()) {
        let frame = hex(&vector["hex"]);
        let bodies = vector["flags"].as_u64().expect("flags") & 1 != 0;
        let read =
            Encoded::from_payload(Bytes::from(frame[16..].to_vec()), bodies.into()).expect("a payload");
        let expected = value(&vector["payload"]);
        assert!(same(&read.to_value().expect("a value"), &expected), "{}", vector["name"]);
        if !bodies {
            assert_eq!(Encoded::encode(&expected).expect("sendable").head(), &frame[16..]);
        }
        // A received value can be sent unchanged, bodies included.
        let mut again = bytes::BytesMut::new();
        read.write_to(&mut again);
        assert_eq!(again, frame[16..], "{}", vector["name"]);
        assert_eq!(read.payload_len(), again.len());
    }
}
