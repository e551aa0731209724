//! The texts of all errors of values and frames.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::frame::{BadHeader, FrameKind};
use crate::value::{
    DoesNotFit, Encoded, ParseBigIntError, PayloadLayout, TimeError, Value, ValueError, ValueErrorKind,
};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_values_and_frames(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_values_and_frames(texts: &mut ErrorTexts) {
    for error in value_errors() {
        let name = match error.kind() {
            ValueErrorKind::Malformed => "ValueError::Malformed",
            ValueErrorKind::Mismatch => "ValueError::Mismatch",
            ValueErrorKind::Unsendable => "ValueError::Unsendable",
        };
        texts.add(name, &error);
    }
    every_variant!(texts, ParseBigIntError {
        NotDecimal => [ParseBigIntError::NotDecimal],
        TooLong => [ParseBigIntError::TooLong],
    });
    texts.add("DoesNotFit", &DoesNotFit);
    every_variant!(texts, TimeError {
        Offset => [TimeError::Offset(90_000)],
        Range => [TimeError::Range],
        Nanoseconds => [TimeError::Nanoseconds(1_000_000_000)],
        Text => [
            "yesterday".parse::<crate::value::DateTime>().expect_err("no date-time"),
            "yesterday".parse::<crate::value::NaiveDateTime>().expect_err("no date-time"),
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

/// One error of each kind, each made as a user would.
fn value_errors() -> [ValueError; 3] {
    let path = Path::new(OsStr::from_bytes(b"caf\xe9.txt"));
    let malformed = Encoded::from_payload(bytes::Bytes::from_static(b"\xc1"), PayloadLayout::Plain);
    let rows = Encoded::encode(&Value::from(vec![Value::from(1), Value::from("two")])).expect("a value");
    [
        malformed.and_then(|bytes| bytes.to_value()).expect_err("no value").under("result"),
        rows.decode::<Vec<i64>>().expect_err("a string").under("rows"),
        Encoded::encode(path).expect_err("not UTF-8").under("args"),
    ]
}
