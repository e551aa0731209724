//! The texts of all errors of values and frames.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::frame::{BadHeader, FrameKind};
use crate::value::{
    BigInt, Blob, DateTime, DoesNotFit, Encoded, EncodedItems, Map, NaiveDateTime, ParseBigIntError,
    PayloadLayout, TimeError, Value, ValueError, ValueErrorKind,
};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_values_and_frames(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_values_and_frames(texts: &mut ErrorTexts) {
    for error in [malformed_values(), mismatches(), unsendable_values()].concat() {
        let name = match error.kind() {
            ValueErrorKind::Malformed => "ValueError::Malformed",
            ValueErrorKind::Mismatch => "ValueError::Mismatch",
            ValueErrorKind::Unsendable => "ValueError::Unsendable",
        };
        texts.add(name, &error);
    }
    every_variant!(texts, ParseBigIntError {
        NotDecimal => ["ten".parse::<BigInt>().expect_err("no number")],
        TooLong => [ParseBigIntError::TooLong],
    });
    texts.add("DoesNotFit", &DoesNotFit);
    every_variant!(texts, TimeError {
        Offset => [TimeError::Offset(90_000)],
        Range => [TimeError::Range],
        Nanoseconds => [TimeError::Nanoseconds(1_000_000_000)],
        Text => [
            "yesterday".parse::<DateTime>().expect_err("no date-time"),
            "yesterday".parse::<NaiveDateTime>().expect_err("no date-time"),
        ],
    });
    every_variant!(texts, BadHeader {
        Version => [BadHeader::Version(9)],
        Kind => [BadHeader::Kind(200)],
        Flags => [BadHeader::Flags(0x80)],
        TooLong => [BadHeader::TooLong { length: 1 << 30, limit: 64 << 20 }],
        TooLongForItsKind => [BadHeader::TooLongForItsKind {
            kind: FrameKind::Pong,
            length: 70_000,
            limit: 65_536,
        }],
    });
}

/// Reads each of these payloads, which no sender of this protocol writes.
fn malformed_values() -> Vec<ValueError> {
    let payload = |bytes: &[u8], layout| Encoded::from_payload(bytes::Bytes::copy_from_slice(bytes), layout);
    let unreadable = |bytes: &[u8]| {
        let read = payload(bytes, PayloadLayout::Plain).and_then(|it| it.to_value());
        read.expect_err("no value")
    };
    let deep = [0x91; 200];
    let plain = |bytes: &[u8]| payload(bytes, PayloadLayout::Plain).expect("a payload");
    vec![
        unreadable(b"\xc1"),
        unreadable(b"\x92\x01"),
        unreadable(b"\x01\x02"),
        unreadable(b"\x01\x02\x03"),
        unreadable(b"\xa1\xff"),
        unreadable(b"\x81\x80\x01"),
        ValueError::malformed(unreadable(&deep).message()),
        unreadable(b"\xd4\x09\x00"),
        unreadable(b"\xd4\xff\x00"),
        unreadable(b"\xd7\x04\x00\x00\x00\x00\x01\x00\x00\x00"),
        payload(b"\x09\x00\x00\x00", PayloadLayout::WithBodies).map(drop).expect_err("cut"),
        plain(b"\x01").list_len().expect_err("no list"),
        plain(b"\x91\x01").flagged(|_, _| Ok(())).expect_err("no pair"),
        plain(b"\x91\x92\xc2\x01\x02").flagged(|_, _| Ok(())).expect_err("too long"),
        EncodedItems::list(plain(b"\x90")).map(drop).expect_err("no items"),
        EncodedItems::list(plain(b"\x91\x01\x02"))
            .and_then(|mut items| items.decode_next::<i64>().expect("an item").1)
            .expect_err("too long"),
    ]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Row {
    id: u8,
    kind: Option<Kind>,
}

#[derive(Debug, Deserialize)]
enum Kind {
    Plain,
    Other,
}

/// Reads each of these values as another type.
fn mismatches() -> Vec<ValueError> {
    fn read<T: DeserializeOwned>(value: impl Serialize) -> ValueError {
        let read = Encoded::encode(&value).and_then(|it| it.decode::<T>()).map(drop);
        read.expect_err("another type").under("result")
    }
    vec![
        read::<Vec<i64>>((1, "two")),
        read::<String>(vec![1]),
        read::<bool>(0.5),
        read::<f64>(i64::MAX),
        read::<u8>(256),
        read::<()>(true),
        read::<(u8, u8)>([1, 2, 3]),
        read::<(u8, u8)>([1]),
        read::<DateTime>("2024-02-29"),
        read::<NaiveDateTime>(DateTime::new(0, 0).expect("an offset")),
        read::<Blob>("text"),
        read::<BigInt>(1.5),
        read::<Map>(1),
        read::<Row>(1),
        read::<Row>(json!({})),
        read::<Row>(json!({"id": 1, "prize": 1})),
        read::<Row>(json!({"id": 1, "kind": "Plane"})),
        read::<Row>(json!({"id": 1, "kind": {}})),
    ]
}

/// Sends each of these values, which the protocol cannot represent.
fn unsendable_values() -> Vec<ValueError> {
    let path = Path::new(OsStr::from_bytes(b"caf\xe9.txt"));
    let deep = (0..129).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
    let by_map = Map::from([(Value::from(Map::new()), Value::Nil)]);
    vec![
        Encoded::encode(path).expect_err("not UTF-8").under("args"),
        Encoded::encode(&by_map).expect_err("a map as a key").under("args"),
        ValueError::unsendable(Encoded::encode(&deep).expect_err("too deep").message()),
    ]
}
