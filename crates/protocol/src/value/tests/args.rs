//! Tests of the arguments of a call.

use std::collections::HashMap;

use serde::Serialize;

use crate::args;
use crate::value::{Args, Encoded};

fn shown(args: impl Serialize) -> String {
    Args::new(&args).into_encoded().expect("sendable").to_value().expect("a value").to_string()
}

#[test]
fn arguments_go_by_name() {
    let b = String::from("x");
    assert_eq!(shown(args! { a: 1, b: b, list: vec![1, 2] }), r#"{"a":1,"b":"x","list":[1,2]}"#);
    assert_eq!(
        shown(args! { "key with space": 3, r#type: 4, match: 5, }),
        r#"{"key with space":3,"type":4,"match":5}"#
    );
    assert_eq!(b, "x");
}

#[test]
fn arguments_go_by_position() {
    assert_eq!(shown(args![1, "two", None::<u8>]), r#"[1,"two",null]"#);
    assert_eq!(shown(args![u8::MAX, -1]), "[255,-1]");
    assert_eq!(shown(args![()]), "[null]");
}

#[test]
fn no_arguments_are_an_empty_map() {
    assert_eq!(shown(args! {}), "{}");
    assert_eq!(shown(()), "{}");
    assert_eq!(shown(Args::default()), "{}");
}

#[test]
fn any_serializable_value_can_be_arguments() {
    #[derive(Serialize)]
    struct Add {
        a: i32,
        b: i32,
    }
    assert_eq!(shown(Add { a: 1, b: 2 }), r#"{"a":1,"b":2}"#);
    assert_eq!(shown((1, 2)), "[1,2]");
    assert_eq!(shown("one"), r#""one""#);
    assert_eq!(shown(HashMap::from([("a", 1)])), r#"{"a":1}"#);
    assert_eq!(
        shown(args! { inner: args! { a: 1 }, list: [args![1], args![2]] }),
        r#"{"inner":{"a":1},"list":[[1],[2]]}"#
    );
}

struct Unsendable;

impl Serialize for Unsendable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no form on the wire"))
    }
}

#[test]
fn arguments_that_cannot_be_sent_fail_when_they_are_used() {
    let args = args! { a: 1, rows: vec![Some(Unsendable)], b: 2 };
    let error = Encoded::encode(&args).expect_err("unsendable").under("args");
    assert_eq!(error.to_string(), "args.rows[0]: no form on the wire");
    let error = Args::new(&args![1, Unsendable]).into_encoded().expect_err("unsendable").under("args");
    assert_eq!(error.to_string(), "args[1]: no form on the wire");
    let error = Encoded::encode(&args! { deep: [args! { "a b": Unsendable }] }).expect_err("unsendable");
    assert_eq!(error.to_string(), r#"deep[0]["a b"]: no form on the wire"#);
}
