//! Tests of the description and the path of errors.

use std::collections::HashMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::value::{
    BigInt, Blob, DateTime, Encoded, Map, NaiveDateTime, PayloadLayout, Value, ValueErrorKind,
};

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Table {
    rows: Vec<TableRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct TableRow {
    id: u8,
    price: Option<i64>,
    kind: Option<RowKind>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only read")]
enum RowKind {
    Plain,
    Point { x: i32 },
    Pair(i32, i32),
}

fn refused<T: DeserializeOwned + std::fmt::Debug>(value: impl Serialize) -> String {
    let error = Encoded::encode(&value).expect("sendable").decode::<T>().expect_err("refused");
    assert_eq!(error.kind(), ValueErrorKind::Mismatch);
    error.under("result").to_string()
}

fn row(row: impl Serialize) -> String {
    refused::<Table>(HashMap::from([("rows", (json!({"id": 1}), row))]))
}

#[test]
fn a_decoding_error_names_the_path_and_both_kinds() {
    assert_eq!(
        row(json!({"id": 1, "price": "much"})),
        "result.rows[1].price: expected an integer, found a string"
    );
    assert_eq!(row(json!({"id": 256})), "result.rows[1].id: 256 does not fit in u8");
    assert_eq!(row(json!({})), r#"result.rows[1]: the key "id" is missing"#);
    assert_eq!(row(json!({"id": null})), "result.rows[1].id: expected an integer, found nil");
    assert_eq!(
        row(json!({"id": 1, "prize": 1})),
        r#"result.rows[1]: unknown key "prize", expected one of "id", "price", "kind""#
    );
    assert_eq!(refused::<Table>(1), "result: expected struct Table, found the integer 1");
    assert_eq!(refused::<(u8, u8)>([1, 2, 3]), "result: expected 2 entries, found 3");
    assert_eq!(refused::<(u8, u8)>([1]), "result: expected a tuple of size 2, found 1 entry");
    assert_eq!(refused::<bool>(0.5), "result: expected a boolean, found the float 0.5");
}

#[test]
fn the_variant_of_an_enum_is_part_of_the_path() {
    assert_eq!(
        row(json!({"id": 1, "kind": {"Point": {"x": true}}})),
        "result.rows[1].kind.Point.x: expected an integer, found the boolean true"
    );
    assert_eq!(
        row(json!({"id": 1, "kind": {"Pair": [1, ""]}})),
        "result.rows[1].kind.Pair[1]: expected an integer, found a string"
    );
    assert_eq!(
        row(json!({"id": 1, "kind": "Plane"})),
        r#"result.rows[1].kind: unknown variant "Plane", expected one of "Plain", "Point", "Pair""#
    );
    assert_eq!(
        row(json!({"id": 1, "kind": {}})),
        "result.rows[1].kind: expected a string or a map of one entry, found a map of 0 entries"
    );
}

#[test]
fn map_keys_that_are_not_identifiers_are_quoted_in_paths() {
    let by_number = Map::from([(Value::from(5), Value::from("x"))]);
    assert_eq!(refused::<HashMap<i64, i64>>(by_number), "result[5]: expected an integer, found a string");
    let by_text = Map::from([("a b", "x")]);
    assert_eq!(
        refused::<HashMap<String, i64>>(by_text),
        r#"result["a b"]: expected an integer, found a string"#
    );
}

#[test]
fn date_times_and_big_integers_accept_only_their_own_kind() {
    let at = DateTime::new(0, 0).expect("an offset");
    assert_eq!(refused::<DateTime>("x"), "result: expected a date-time with its offset, found a string");
    assert_eq!(
        refused::<NaiveDateTime>(at),
        "result: expected a date-time without a zone, found a date-time"
    );
    assert_eq!(refused::<String>(at), "result: expected a string, found a date-time");
    assert_eq!(refused::<BigInt>(1.5), "result: expected an integer, found the float 1.5");
    assert_eq!(refused::<Blob>("x"), "result: expected a byte string, found a string");
    assert_eq!(
        refused::<String>(Value::from(Bytes::from_static(b"x"))),
        "result: expected a string, found a byte string"
    );
    assert_eq!(refused::<Map>(1), "result: expected a map, found the integer 1");
}

#[test]
fn malformed_bytes_are_reported_with_their_path() {
    // {"a": [1, <extension 9>]}
    let bytes = Bytes::from_static(b"\x81\xa1a\x92\x01\xd4\x09\x00");
    let encoded = Encoded::from_payload(bytes, PayloadLayout::Plain).expect("a payload");
    let error = encoded.to_value().expect_err("malformed");
    assert_eq!(error.to_string(), "a[1]: unknown extension type 9");
    assert_eq!(error.kind(), ValueErrorKind::Malformed);
    let error = encoded.decode::<HashMap<String, Vec<i64>>>().expect_err("malformed");
    assert_eq!((error.path(), error.kind()), ("a[1]".to_owned(), ValueErrorKind::Malformed));
}

#[test]
fn a_value_that_cannot_be_sent_is_reported_with_its_path() {
    let deep = (0..128).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
    assert!(Encoded::encode(&deep).is_ok());
    let error = Encoded::encode(&Map::from([("deep", deep)])).expect_err("129 levels");
    assert_eq!(error.kind(), ValueErrorKind::Unsendable);
    assert_eq!(error.message(), "nested deeper than 128 levels");
    assert!(error.path().starts_with("deep[0][0]"));

    let by_map = Map::from([(Value::from(Map::new()), Value::Nil)]);
    let error = Encoded::encode(&vec![by_map]).expect_err("a map as a key");
    assert_eq!(error.to_string(), "[0]: a map cannot be a key");
}
