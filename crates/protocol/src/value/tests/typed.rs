//! Tests of encoding and decoding types of the caller.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::value::{BigInt, Blob, DateTime, Encoded, Map, NaiveDateTime, PayloadLayout, Value};

fn through<T: Serialize, U: serde::de::DeserializeOwned>(value: T) -> U {
    Encoded::encode(&value).expect("sendable").decode().expect("readable")
}

fn shown<T: Serialize>(value: T) -> String {
    Encoded::encode(&value).expect("sendable").to_value().expect("readable").to_string()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum EveryVariant {
    Unit,
    Newtype(i32),
    Tuple(i32, String),
    Struct { x: i32 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    flag: bool,
    small: i8,
    large: u64,
    larger: i128,
    largest: u128,
    ratio: f64,
    letter: char,
    name: String,
    nothing: (),
    maybe: Option<u8>,
    not: Option<u8>,
    pair: (u8, String),
    shapes: Vec<EveryVariant>,
    numbers: BTreeMap<i64, bool>,
    big: BigInt,
    at: DateTime,
    local: NaiveDateTime,
    blob: Blob,
    any: Value,
}

fn everything() -> Everything {
    Everything {
        flag: true,
        small: -7,
        large: u64::MAX,
        larger: i128::MIN,
        largest: u128::MAX,
        ratio: 0.1,
        letter: 'ß',
        name: "name".into(),
        nothing: (),
        maybe: Some(3),
        not: None,
        pair: (1, "two".into()),
        shapes: vec![
            EveryVariant::Unit,
            EveryVariant::Newtype(1),
            EveryVariant::Tuple(2, "b".into()),
            EveryVariant::Struct { x: 3 },
        ],
        numbers: BTreeMap::from([(-1, true), (1, false)]),
        big: "123456789012345678901234567890123456789012345678901234567890".parse().expect("an integer"),
        at: DateTime::new(1_700_000_000_000_001, -34_200).expect("an offset"),
        local: NaiveDateTime::new(-1),
        blob: Blob::from(vec![1, 2, 3]),
        any: Value::from(vec![Value::Nil, Value::from(Map::from([("k", Bytes::from_static(b"v"))]))]),
    }
}

#[test]
fn every_kind_of_field_round_trips() {
    assert_eq!(through::<_, Everything>(everything()), everything());
}

#[test]
fn every_kind_of_field_round_trips_through_json() {
    let text = serde_json::to_string(&Everything { blob: Blob::default(), any: Value::Nil, ..everything() });
    let mut read: Json = serde_json::from_str(&text.expect("JSON")).expect("JSON");
    assert_eq!(read["at"], "2023-11-14T12:43:20.000001-09:30");
    assert_eq!(read["big"], "123456789012345678901234567890123456789012345678901234567890");
    assert_eq!(read["blob"], "");
    read["blob"] = json!([]);
    read["larger"] = json!(0);
    read["largest"] = json!(0);
    let read: Everything = serde_json::from_value(read).expect("everything");
    assert_eq!((read.at, read.local, read.big), (everything().at, everything().local, everything().big));
}

#[test]
fn structs_are_maps_and_enums_are_tagged_by_name() {
    let shapes = everything().shapes;
    assert_eq!(shown(shapes), r#"["Unit",{"Newtype":1},{"Tuple":[2,"b"]},{"Struct":{"x":3}}]"#);
    assert_eq!(shown((None::<u8>, ())), "[null,null]");
    assert_eq!(through::<_, EveryVariant>(Map::from([("Unit", Value::Nil)])), EveryVariant::Unit);
}

#[test]
fn a_struct_takes_its_fields_by_position_too() {
    #[derive(Deserialize)]
    struct PositionalFields {
        x: i32,
        y: i32,
    }
    let point: PositionalFields = through((1, 2));
    assert_eq!((point.x, point.y), (1, 2));
}

#[test]
fn bytes_are_a_byte_string_or_a_list() {
    let bytes = Value::from(Bytes::from_static(b"abc"));
    assert_eq!(through::<_, Vec<u8>>(&bytes), b"abc");
    assert_eq!(through::<_, [u8; 3]>(&bytes), *b"abc");
    assert_eq!(through::<_, Vec<u8>>(vec![97, 98, 99]), b"abc");
    assert_eq!(through::<_, Blob>(vec![97, 98, 99]).as_ref(), b"abc");
    assert!(Encoded::encode(&bytes).expect("sendable").decode::<String>().is_err());
}

/// Returns the value that the macro sends.
fn sent(args: crate::value::Args) -> Value {
    args.into_encoded().expect("sendable").to_value().expect("a value")
}

#[test]
fn bytes_in_arguments_are_a_byte_string() {
    use crate::args;
    use std::borrow::Cow;

    let long = vec![7_u8; 100_000];
    let all: [u8; 256] = std::array::from_fn(|index| index as u8);
    let [vec, slice, shared] = [all.to_vec(), all.to_vec(), all.to_vec()];
    let cow: Cow<'_, [u8]> = Cow::Borrowed(&all);
    let boxed: Box<[u8]> = all.into();
    let args = sent(args! {
        vec: vec, slice: &slice[..], vec_ref: &shared, bytes: Bytes::from(shared.clone()), boxed: boxed, cow: cow,
        empty: Vec::<u8>::new(), long: long, list: vec![1, 2], nested: vec![vec![1_u8]],
    });
    for name in ["vec", "slice", "vec_ref", "bytes", "boxed", "cow"] {
        assert_eq!(args[name].as_bytes().map(|bytes| &bytes[..]), Some(&all[..]), "{name}");
    }
    assert_eq!(args["empty"].as_bytes().map(Bytes::len), Some(0));
    assert_eq!(args["long"].as_bytes().map(Bytes::len), Some(100_000));
    assert_eq!(args["list"], Value::from(vec![1, 2]), "numbers that nobody called bytes stay numbers");
    assert!(args["nested"][0].as_list().is_some(), "inside of others, serde decides");
    assert_eq!(sent(args![all.to_vec()])[0].as_bytes().map(Bytes::len), Some(256));
    assert_eq!(Value::from(all.to_vec()).as_bytes().map(Bytes::len), Some(256));
    assert_eq!(Value::from(&all[..]).as_bytes().map(Bytes::len), Some(256));
}

#[test]
fn the_types_of_serde_bytes_are_byte_strings_both_ways() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Thumbnail {
        #[serde(with = "serde_bytes")]
        pixels: Vec<u8>,
        more: serde_bytes::ByteBuf,
    }
    let image = Thumbnail { pixels: vec![1, 200], more: serde_bytes::ByteBuf::from(vec![3]) };
    let encoded = Encoded::encode(&image).expect("sendable");
    assert_eq!(encoded.to_value().expect("a value")["pixels"].as_bytes().map(Bytes::len), Some(2));
    assert_eq!(encoded.decode::<Thumbnail>().expect("the same"), image);
}

#[test]
fn a_float_takes_an_integer_that_it_holds_exactly() {
    assert_eq!(through::<_, f64>(3).to_bits(), 3f64.to_bits());
    assert_eq!(through::<_, f64>(-(1i64 << 53)).to_bits(), (-9_007_199_254_740_992f64).to_bits());
    let error = Encoded::encode(&((1i64 << 53) + 1)).expect("sendable").decode::<f64>().expect_err("inexact");
    assert_eq!(error.to_string(), "a float cannot hold 9007199254740993 exactly");
    let error = Encoded::encode(&1.0).expect("sendable").decode::<i64>().expect_err("a float");
    assert_eq!(error.to_string(), "expected an integer, found the float 1.0");
}

#[test]
fn integers_have_the_range_of_their_type() {
    let refused = |error: crate::value::ValueError| error.to_string();
    let sent = |number: i128| Encoded::encode(&number).expect("sendable");
    assert_eq!(refused(sent(300).decode::<u8>().expect_err("range")), "300 does not fit in u8");
    assert_eq!(refused(sent(-1).decode::<u64>().expect_err("range")), "-1 does not fit in u64");
    assert_eq!(
        refused(sent(1 << 64).decode::<i64>().expect_err("range")),
        "18446744073709551616 does not fit in i64"
    );
    let huge = Encoded::encode(&everything().big).expect("sendable");
    assert!(refused(huge.decode::<i128>().expect_err("range")).ends_with("does not fit in i128"));
    assert_eq!(sent(i128::MIN).decode::<i128>(), Ok(i128::MIN));
    assert_eq!(sent(5).decode::<BigInt>(), Ok(BigInt::from(5)));
}

#[test]
fn a_small_integer_in_a_big_one_is_written_as_an_integer() {
    assert_eq!(Encoded::encode(&BigInt::from(5)).expect("sendable").head(), [5]);
    assert_eq!(Encoded::encode(&BigInt::from(u64::MAX)).expect("sendable").head()[0], 0xcf);
}

#[test]
fn the_last_of_equal_keys_wins() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct TwoKeys {
        a: i32,
        b: Vec<i32>,
    }
    // {"a": 1, "b": [1], "a": 2, "b": [2]}
    let bytes = Bytes::from_static(b"\x84\xa1a\x01\xa1b\x91\x01\xa1a\x02\xa1b\x91\x02");
    let twice = Encoded::from_payload(bytes, PayloadLayout::Plain).expect("a payload");
    assert_eq!(twice.decode(), Ok(TwoKeys { a: 2, b: vec![2] }));
    assert_eq!(twice.to_value().expect("a value").to_string(), r#"{"a":2,"b":[2]}"#);
    assert_eq!(twice.decode::<HashMap<String, Value>>().expect("a map")["a"], Value::Int(2));
}

#[test]
fn a_large_map_keeps_the_last_of_equal_keys_in_the_place_of_the_first() {
    let entries = (0..100).map(|index| (index % 50, index));
    let map: Map = entries.collect();
    assert_eq!(map.len(), 50);
    assert_eq!(map.iter().next(), Some((&Value::Int(0), &Value::Int(50))));
    assert_eq!(map.get_key(&Value::Int(49)), Some(&Value::Int(99)));
}

#[test]
fn untagged_and_flattened_types_accept_every_kind() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        At(DateTime),
        Text(String),
        Number(i64),
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer {
        id: u8,
        #[serde(flatten)]
        rest: HashMap<String, Either>,
    }
    let at = everything().at;
    let sent = Map::from([("id", Value::from(1)), ("at", at.into()), ("text", "t".into()), ("n", 5.into())]);
    let outer: Outer = through(sent);
    assert_eq!(outer.rest["at"], Either::At(at));
    assert_eq!(outer.rest["text"], Either::Text("t".into()));
    assert_eq!(outer.rest["n"], Either::Number(5));
}

#[test]
fn json_is_a_value_and_a_value_is_json() {
    let json = json!({"a": [1, -1, 1.5, null, true, "x"], "b": {}});
    let value: Value = serde_json::from_value(json.clone()).expect("a value");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), json);
    assert_eq!(through::<_, Json>(&value), json);
    let special = Value::from(vec![
        Value::from(Bytes::from_static(b"foob")),
        everything().at.into(),
        (1u128 << 100).into(),
    ]);
    assert_eq!(
        serde_json::to_string(&special).expect("JSON"),
        r#"["Zm9vYg==","2023-11-14T12:43:20.000001-09:30",1267650600228229401496703205376]"#
    );
}

#[test]
fn sequences_of_unknown_length_get_the_right_header() {
    struct Unknown(usize);
    impl Serialize for Unknown {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            // A wrong length is a harder case than no length.
            let mut list = serializer.serialize_seq(if self.0.is_multiple_of(2) { None } else { Some(3) })?;
            for index in 0..self.0 {
                list.serialize_element(&index)?;
            }
            list.end()
        }
    }
    for len in [0, 1, 3, 15, 16, 17, 65_535, 65_536] {
        let expected = Encoded::encode(&(0..len).collect::<Vec<_>>()).expect("sendable");
        assert_eq!(Encoded::encode(&Unknown(len)).expect("sendable").head(), expected.head());
    }
}
